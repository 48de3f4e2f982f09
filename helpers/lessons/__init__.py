"""For students: checks of exercises, the numbers of a finding, and figures of another run.

``from helpers.lessons import check, print_findings, show_committed_figure`` in a notebook.
"""

from helpers.lessons import check
from helpers.lessons.figures import show_committed_figure
from helpers.lessons.findings import print_findings

__all__ = ["check", "print_findings", "show_committed_figure"]
