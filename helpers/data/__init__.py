"""Text and annotations in; knows no model."""

from pathlib import Path

from helpers.files import file_digests

CODE = file_digests(Path(__file__).parent)  # of cached results
