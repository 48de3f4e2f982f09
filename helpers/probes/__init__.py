"""Section 5 of the paper: the probing classifiers, and Table 3."""

from pathlib import Path

from helpers import metrics
from helpers.files import file_digests

CODE = metrics.CODE | file_digests(Path(__file__).parent)  # of cached results
