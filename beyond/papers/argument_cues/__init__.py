"""Probing Neural Network Comprehension of Arguments (Niven and Kao, 2019): notebook 09."""

from pathlib import Path

from beyond.papers import NOT_CACHED, common
from helpers.files import file_digests

CODE = common.CODE | file_digests(Path(__file__).parent, without=NOT_CACHED)
