"""Attention maps on disk, in shards."""

from pathlib import Path

from helpers import model
from helpers.files import file_digests

CODE = model.CODE | file_digests(Path(__file__).parent)  # of cached results
