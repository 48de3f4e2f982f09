"""The corpora that settings name: the texts, trees and documents that a run reads."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING

from helpers.data.glove import glove
from helpers.data.text_files import file_fingerprint
from helpers.errors import InputError
from helpers.files import resolve_user_path
from helpers.settings import PATH_SETTINGS

if TYPE_CHECKING:
    from helpers.data.records import Corpus, Document, Segment, Sentence
    from helpers.settings import Settings

# Settings of corpora whose fingerprints are those of a sample, and not of their files.
SAMPLED = ("text", "treebank", "coref", "vectors")


def segment_corpus(settings: Settings, limit: int | None = None) -> Corpus[Segment]:
    """Sample pairs of paragraphs of ``text``, by default of the bundled dump (sections 3 and 6).

    Parameters
    ----------
    settings : Settings
        The settings of a run.
    limit : int, optional
        Largest number of pairs; by default ``settings.segments``.
    """
    from helpers.data.wikipedia import segments

    return segments(settings.text or None, count=limit or settings.segments, seed=settings.seed)


def treebank_corpus(settings: Settings) -> Corpus[Sentence]:
    """Sample sentences of ``treebank``, by default automatic parses of the text (4.2 and 5)."""
    if settings.treebank:
        from helpers.data.corpora import resolve_treebank

        return resolve_treebank(settings.treebank, sentences=settings.sentences, seed=settings.seed)
    from helpers.data.treebank import silver_treebank

    return silver_treebank(settings.text or None, count=settings.sentences, seed=settings.seed)


def coreference_corpus(settings: Settings) -> Corpus[Document]:
    """Choose the documents of ``coref``, by default the bundled sample (section 4.3)."""
    if settings.coref:
        from helpers.data.corpora import resolve_coreference

        return resolve_coreference(settings.coref)
    from helpers.data.coreference import coreference_corpus

    return coreference_corpus()


def fingerprints(settings: Settings, declared: Collection[str]) -> dict[str, str]:
    """Compute the SHA-256 of each corpus that the declared settings describe in full.

    A notebook that does not declare ``segments``, for example, does not know the text of the run.
    A corpus that cannot be read has no fingerprint: the notebook that reads it gives the error.
    """
    digests = {}
    with suppress(InputError):
        if "segments" in declared:
            digests["text fingerprint"] = segment_corpus(settings).fingerprint
    with suppress(InputError):
        if "sentences" in declared:
            digests["treebank fingerprint"] = treebank_corpus(settings).fingerprint
    with suppress(InputError):
        if "coref" in declared:
            digests["coreference fingerprint"] = coreference_corpus(settings).fingerprint
    with suppress(InputError):
        if "vectors" in declared:
            digests["word vectors fingerprint"] = _vectors_fingerprint(settings.vectors)
    for setting in set(PATH_SETTINGS).intersection(declared).difference(SAMPLED):
        for name in getattr(settings, setting).split(","):
            path = resolve_user_path(name.strip())
            if name.strip() and path.exists():
                digests[f"{setting} {path.name} fingerprint"] = file_fingerprint(path)
    return digests


def _vectors_fingerprint(vectors: str) -> str:
    return file_fingerprint(resolve_user_path(vectors)) if vectors else glove().fingerprint
