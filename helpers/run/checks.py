"""What the user named is looked at before any work starts: seconds, not minutes."""

from __future__ import annotations

from typing import get_args

from helpers.data.glove import check_glove
from helpers.errors import InputError
from helpers.model.checkpoint import DType
from helpers.paths import given_path
from helpers.studies.argument_cues.arguments import argument_corpus
from helpers.studies.tasks import read_task
from helpers.study import Study


def check(study: Study) -> None:
    """Look at what the user named before any work starts; annotated corpora are read whole.

    Raises:
        InputError: a path that does not exist, a corpus or task that cannot be read, a model that
            cannot be loaded, or that does not take these settings.
    """
    if study.dtype not in get_args(DType):
        raise InputError(f"--dtype {study.dtype}: expected {', '.join(get_args(DType))}")
    _check_task(study.task)
    if study.framenet and not given_path(study.framenet).is_dir():
        raise InputError(f"--framenet {study.framenet}: no such folder")
    if study.arct:
        argument_corpus(study.arct)
    if study.vectors:
        check_glove(study.vectors)
    for named, corpus in (
        (study.text, study.segment_corpus),
        (study.treebank, study.treebank_corpus),
        (study.coref, study.coreference_corpus),
    ):
        if named:
            corpus().check()
    _check_model(study)


def _check_task(task: str) -> None:
    if not task:
        return
    paths = [given_path(part.strip()) for part in task.split(",")]
    for path in paths:
        if not path.is_file():
            raise InputError(f"--task {task}: no file {path}; give TRAIN.tsv,TEST.tsv")
    if len(paths) != 2:
        raise InputError(f"--task {task}: expected TRAIN.tsv,TEST.tsv")
    read_task(*paths)


def _check_model(study: Study) -> None:
    """Load the model, unless it has been before, and see whether it takes inputs so long."""
    from helpers.store.extract import store_key

    store_key(study.encoder, study.segment_corpus(), max_tokens=study.max_tokens)
