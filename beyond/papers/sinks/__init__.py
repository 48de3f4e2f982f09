"""Norm lens, edge ablation, attribution and sinks (Kobayashi et al. 2020, Sun et al. 2024)."""

from pathlib import Path

from beyond.papers import NOT_CACHED, common
from helpers.files import file_digests

CODE = common.CODE | file_digests(Path(__file__).parent, without=NOT_CACHED)
