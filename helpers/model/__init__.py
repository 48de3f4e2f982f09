"""A Hugging Face encoder, and what is done to its inside."""

from pathlib import Path

from helpers import data
from helpers.files import file_digests

FOLDER = Path(__file__).parent
CODE = data.CODE | file_digests(FOLDER, FOLDER.parent / "progress.py")  # of cached results
