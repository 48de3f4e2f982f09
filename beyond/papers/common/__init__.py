"""Tasks, fine-tuning, and heads or edges taken out: the code that several studies share."""

from pathlib import Path

from helpers import probes
from helpers.files import file_digests

CODE = probes.CODE | file_digests(Path(__file__).parent)  # of cached results
