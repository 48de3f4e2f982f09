"""For students: checks of exercises, and the numbers of a finding in a reader's own run.

``from helpers.lessons import check, print_findings`` in a notebook.
"""

from helpers.lessons import check
from helpers.lessons.findings import print_findings

__all__ = ["check", "print_findings"]
