"""For students: checks of exercises, the numbers of a finding, and figures of another run.

``from beyond.lessons import check, print_findings, show_committed_figure`` in a notebook.
"""

from beyond.lessons import check
from beyond.lessons.figures import show_committed_figure
from beyond.lessons.findings import print_findings

__all__ = ["check", "print_findings", "show_committed_figure"]
