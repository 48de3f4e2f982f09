"""Norm lens, edge ablation, attribution (Kobayashi et al. 2020, Abnar and Zuidema 2020)."""

from pathlib import Path

from beyond.papers import NOT_CACHED, common
from helpers.files import file_digests

CODE = common.CODE | file_digests(Path(__file__).parent, without=NOT_CACHED)
