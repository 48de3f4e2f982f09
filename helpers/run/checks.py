"""What the user named is looked at before any work starts."""

from __future__ import annotations

from helpers.data.glove import check_glove
from helpers.errors import InputError
from helpers.paths import given_path
from helpers.studies.argument_cues.arguments import argument_corpus
from helpers.study import Study


def check(study: Study) -> None:
    """Look at what the user named before any work starts; annotated corpora are read whole.

    Raises:
        InputError: a path that does not exist, or a corpus that cannot be read.
    """
    for named, corpus in (
        (study.text, study.segment_corpus),
        (study.treebank, study.treebank_corpus),
        (study.coref, study.coreference_corpus),
    ):
        if named:
            corpus().check()
    if study.vectors:
        check_glove(study.vectors)
    for part in filter(None, study.task.split(",")):
        if not given_path(part.strip()).is_file():
            raise InputError(f"--task {study.task}: no file {part}; give TRAIN.tsv,TEST.tsv")
    if study.framenet and not given_path(study.framenet).is_dir():
        raise InputError(f"--framenet {study.framenet}: no such folder")
    if study.arct:
        argument_corpus(study.arct)
