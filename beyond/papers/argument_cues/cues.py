"""Cues in warrants: how often a word or two give the right one away (Niven & Kao 2019, section 4).

A cue k is a unigram or a bigram.  It is applicable to an argument if it is in one of the two
warrants and not in the other.  Over n arguments

- applicability ``alpha_k``: the number of arguments that it is applicable to;
- productivity ``pi_k``: the share of these in which it is in the right warrant;
- coverage ``xi_k = alpha_k / n``.

With two warrants, a cue with a productivity above 1/2 helps a model that follows it.  Such a model
picks the warrant with the cue, and guesses if the cue is not applicable.  It is right on
``1/2 + xi_k (pi_k - 1/2)``; its ``gain`` over guessing is therefore ``xi_k (pi_k - 1/2)``.

The paper does not say how it counts words.  Here text is lower-cased; a word is a run of letters
and digits, with apostrophes and hyphens inside; a bigram is two words in a row.  ``n't`` is read
as ``not`` (``won't`` as ``will not``) and ``cannot`` as ``can not``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pandas as pd

from beyond.papers.argument_cues.arguments import (
    ADVERSARIAL_SUFFIX,
    SPLITS,
    Argument,
    Arguments,
)
from beyond.papers.common.fine_tune import concat_with_keys
from beyond.papers.common.statistics import wilson_percentage

NOT = "not"
ALL_SPLITS = "all"  # a value of the column split
CHANCE = 50.0  # percent, of two warrants
# The sets of arguments that are counted and tested on: as written; their counterparts; and both
# together, of the arguments that have a counterpart.
AS_WRITTEN, ADVERSARIAL, BOTH = ("original", "adversarial", "both")
MIN_ARGUMENTS = 5  # cues that are applicable to fewer arguments are not listed,
MIN_SHARE = 0.01  # nor cues that are applicable to a smaller share of them

_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_APOSTROPHES = str.maketrans({"’": "'", "ʼ": "'", "`": "'"})
# Words with "not" in them, and the words as which they are read.
_CONTRACTIONS = {
    "won't": "will not", "can't": "can not", "shan't": "shall not", "cannot": "can not"
}  # fmt: skip


def words(text: str) -> list[str]:
    """Split a text into words; ``not`` is a word of its own."""
    text_words: list[str] = []
    for word in _WORD.findall(text.translate(_APOSTROPHES).lower()):
        with_not = _CONTRACTIONS.get(word) or word
        if with_not.endswith("n't"):
            with_not = with_not.removesuffix("n't") + " not"
        text_words += with_not.split()
    return text_words


def cues_of(text: str) -> set[str]:
    """List every unigram and bigram of a text; the words of a bigram are joined by a space."""
    text_words = words(text)
    return {*text_words, *map(" ".join, pairwise(text_words))}


def cue_table(arguments: Sequence[Argument], *, min_arguments: int = 1) -> pd.DataFrame:
    """Count every cue in the warrants of some arguments.

    Parameters
    ----------
    arguments : sequence of Argument
        The n arguments.
    min_arguments : int, optional
        Cues that are applicable to fewer arguments are left out.

    Returns
    -------
    DataFrame
        One row per cue, the largest gain first.  Columns: cue, kind ("unigram" or "bigram"),
        applicability (number of arguments), productivity with its 95% interval
        (productivity_low, productivity_high), coverage and gain (percent).
    """
    rows = []
    for argument in arguments:
        first = cues_of(argument.warrant0)
        second = cues_of(argument.warrant1)
        rows += [(cue, argument.label == 0) for cue in first - second]
        rows += [(cue, argument.label == 1) for cue in second - first]
    by_cue = pd.DataFrame(rows, columns=["cue", "right"]).groupby("cue")["right"]
    rows = []
    for cue, right in by_cue:
        if len(right) >= min_arguments:
            ngram = "bigram" if " " in cue else "unigram"
            productivity = wilson_percentage(right.sum(), len(right))
            bounds = productivity.columns("productivity").values()
            rows.append((cue, ngram, len(right), *bounds))
    columns = [
        "cue",
        "kind",
        "applicability",
        "productivity",
        "productivity_low",
        "productivity_high",
    ]
    table = pd.DataFrame(rows, columns=columns)
    table["coverage"] = 100 * table["applicability"] / len(arguments)
    table["gain"] = table["coverage"] / 100 * (table["productivity"] - CHANCE)
    order = ["gain", "applicability", "cue"]
    return table.sort_values(order, ascending=[False, False, True], ignore_index=True)


def cues_by_split(corpus: Arguments) -> pd.DataFrame:
    """Count the cues of each split, and of all splits, in each of the `argument_sets`.

    Parameters
    ----------
    corpus : Arguments
        The originals and their counterparts.

    Returns
    -------
    DataFrame
        The table cues.csv: corpus (its name), half (original, adversarial or both), split, and the
        columns of `cue_table`; then paper_productivity and paper_coverage (percent), for ``not``
        in the originals, unless the cue is planted.  Cues that are applicable to fewer than
        `MIN_ARGUMENTS` arguments, or to a smaller share than `MIN_SHARE`, are left out.
    """
    sets = argument_sets([*corpus.original, *corpus.adversarial])
    tables = {}
    for (set_name, arguments), split in product(sets.items(), (*SPLITS, ALL_SPLITS)):
        chosen = [argument for argument in arguments if split in (ALL_SPLITS, argument.split)]
        if chosen:
            min_arguments = max(MIN_ARGUMENTS, int(np.ceil(MIN_SHARE * len(chosen))))
            tables[corpus.name, set_name, split] = cue_table(chosen, min_arguments=min_arguments)
    table = concat_with_keys(tables, "corpus", "half", "split")
    if corpus.planted:
        return table
    is_comparable = (table["cue"] == NOT) & (table["half"] == AS_WRITTEN)
    for measure in ("productivity", "coverage"):
        names = f"{measure} of not, " + table["split"].where(is_comparable)
        table[f"paper_{measure}"] = names.map(published_values()).astype(float)
    return table


def argument_sets(arguments: Sequence[Argument]) -> dict[str, list[Argument]]:
    """Group arguments into the `argument_sets`; in `BOTH` an original precedes its counterpart."""
    originals = [argument for argument in arguments if not argument.adversarial]
    counterparts = {argument.id: argument for argument in arguments if argument.adversarial}
    paired = []
    for original in originals:
        counterpart = counterparts.get(original.id + ADVERSARIAL_SUFFIX)
        if counterpart:
            paired += [original, counterpart]
    return {AS_WRITTEN: originals, ADVERSARIAL: list(counterparts.values()), BOTH: paired}


def published_values() -> dict[str, float]:
    """Read the numbers of the paper's Tables 1 to 4, in percent, by name."""
    table = pd.read_csv(Path(__file__).with_name("paper.csv"), index_col="row")
    return table["value"].to_dict()
