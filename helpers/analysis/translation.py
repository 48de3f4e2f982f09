"""How good translations are: BLEU by sacrebleu, and how many are right to the last word."""

from __future__ import annotations

from collections.abc import Sequence

from sacrebleu.metrics import BLEU

from helpers.errors import InputError


def translation_scores(found: Sequence[str], references: Sequence[str]) -> tuple[float, float]:
    """Return corpus BLEU (0-100; sacrebleu's defaults, 13a tokens) and exact matches in percent.

    Raises:
        InputError: not as many translations as references, or none.
    """
    if len(found) != len(references) or not references:
        raise InputError(f"{len(found)} translations for {len(references)} references")
    bleu = BLEU().corpus_score(list(found), [list(references)]).score
    same = sum(own == gold for own, gold in zip(found, references, strict=True))
    return float(bleu), 100 * same / len(references)
