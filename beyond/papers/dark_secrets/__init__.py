"""Revealing the Dark Secrets of BERT (Kovaleva et al., 2019): notebook 07."""

from pathlib import Path

from beyond.papers import NOT_CACHED, common
from helpers.files import file_digests

CODE = common.CODE | file_digests(Path(__file__).parent, without=NOT_CACHED)
