"""Does a head matter for the words of a relation that it finds?  Notebook 11."""

from pathlib import Path

from beyond.papers import NOT_CACHED, common
from helpers.files import file_digests

CODE = common.CODE | file_digests(Path(__file__).parent, without=NOT_CACHED)
