"""Cues in warrants: how often a word or two give the right one away (Niven & Kao 2019, section 4).

A cue k is a unigram or a bigram.  It is applicable to an argument where it is in one of the two
warrants and not in the other.  Over n arguments

- applicability ``alpha_k``: the number of arguments that it is applicable to;
- productivity ``pi_k``: in what share of these it is in the right warrant;
- coverage ``xi_k = alpha_k / n``.

With two warrants, a cue of a productivity above 1/2 helps whoever follows it.  ``gain`` is by how
much: who picks the warrant with the cue, and guesses where it is not applicable, is right on
``1/2 + xi_k (pi_k - 1/2)``, so the gain over guessing is ``xi_k (pi_k - 1/2)``.

The paper does not say how it counts words.  Here text is lower-cased; a word is a run of letters
and digits, with apostrophes and hyphens inside; a bigram is two words in a row.  ``n't`` is read
as ``not`` (``won't`` as ``will not``) and ``cannot`` as ``can not``; `rule_table` counts ``not``
without these two readings, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise, product

import numpy as np
import pandas as pd

from helpers.analysis.paper import values_of
from helpers.analysis.statistics import share_of
from helpers.studies.argument_cues.arguments import MARK, SPLITS, Argument, Arguments
from helpers.studies.fine_tune import stacked

NOT = "not"
ALL = "all"
CHANCE = 50.0  # percent, of two warrants
HALVES = ("original", "adversarial", "both")
# A cue applicable to fewer arguments than these is not listed.
FEWEST, SMALLEST_SHARE = 5, 0.01
# Each rule reads what is named as words of their own, "not" among them; the last is ours.
RULES: Mapping[str, frozenset[str]] = {
    "not as written": frozenset(),
    "not and cannot": frozenset({"cannot"}),
    "not and n't": frozenset({"n't"}),
    "not, n't and cannot": frozenset({"n't", "cannot"}),
}
RULE = "not, n't and cannot"

_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_APOSTROPHES = str.maketrans({"’": "'", "ʼ": "'", "`": "'"})
_STEMS = {"wo": "will", "ca": "can", "sha": "shall"}  # of won't, can't and shan't


def words(text: str, *, rule: str = RULE) -> list[str]:
    """Return the words of a text, as the module says, or by another of the `RULES`."""
    apart = RULES[rule]
    found: list[str] = []
    for word in _WORD.findall(text.translate(_APOSTROPHES).lower()):
        if word.endswith("n't") and "n't" in apart:
            stem = word.removesuffix("n't")
            found += [_STEMS.get(stem, stem), NOT] if stem else [NOT]
        elif word == "cannot" and "cannot" in apart:
            found += ["can", NOT]
        else:
            found.append(word)
    return found


def cues_of(text: str, *, rule: str = RULE) -> set[str]:
    """Return every unigram and bigram of a text, a bigram with a space inside."""
    sequence = words(text, rule=rule)
    return {*sequence, *(f"{first} {second}" for first, second in pairwise(sequence))}


def cue_table(arguments: Sequence[Argument], *, fewest: int = 1, rule: str = RULE) -> pd.DataFrame:
    """Count every cue of the warrants that is applicable to ``fewest`` arguments or more.

    Columns: cue, kind ("unigram" or "bigram"), arguments (n), applicability (arguments),
    productivity with its 95% interval (ci_low, ci_high), coverage and gain (all in percent); the
    largest gain first.
    """
    rows = []
    for argument in arguments:
        first, second = (cues_of(warrant, rule=rule) for warrant in argument.warrants)
        rows += [(cue, argument.label == 0) for cue in first - second]
        rows += [(cue, argument.label == 1) for cue in second - first]
    by_cue = pd.DataFrame(rows, columns=["cue", "right"]).groupby("cue")["right"]
    counts = by_cue.agg(applicable="size", right="sum").query("applicable >= @fewest").astype(int)
    table = pd.DataFrame({"cue": counts.index})
    table["kind"] = np.where(table["cue"].str.contains(" "), "bigram", "unigram")
    table["arguments"] = len(arguments)
    alpha, right = counts["applicable"].to_numpy(), counts["right"].to_numpy()
    table["applicability"] = alpha
    table["productivity"] = 100 * right / alpha
    intervals = [share_of(*of_cue)[1:] for of_cue in zip(right, alpha, strict=True)]
    table[["ci_low", "ci_high"]] = 100 * np.array(intervals).reshape(-1, 2)
    table["coverage"] = 100 * alpha / max(len(arguments), 1)
    table["gain"] = table["coverage"] / 100 * (table["productivity"] - CHANCE)
    order = ["gain", "applicability", "cue"]
    return table.sort_values(order, ascending=[False, False, True], ignore_index=True)


def cues_by_split(corpus: Arguments) -> pd.DataFrame:
    """Return cues.csv: `cue_table` for each split and all of them, and each half of the corpus.

    Columns before those of `cue_table`: corpus (its name), half (original, adversarial, or both:
    the originals that have a counterpart, with it) and split; after them, of ``not`` in the
    originals, the paper's paper_productivity and paper_coverage (percent), unless the cue is
    planted.  Cues below `FEWEST` arguments or `SMALLEST_SHARE` of them are left out.
    """
    tables = {}
    for half, clusters in halves_of([*corpus.original, *corpus.adversarial]).items():
        for split in (*SPLITS, ALL):
            if chosen := [one for own in clusters for one in own if split in (ALL, one.split)]:
                fewest = max(FEWEST, int(np.ceil(SMALLEST_SHARE * len(chosen))))
                tables[corpus.name, half, split] = cue_table(chosen, fewest=fewest)
    whole = stacked(tables, "corpus", "half", "split")
    comparable = (whole["cue"] == NOT) & (whole["half"] == HALVES[0])
    return whole if corpus.planted else _with_paper(whole, comparable)


def rule_table(corpus: Arguments) -> pd.DataFrame:
    """Return what each way of counting ``not`` gives, by split, where it finds any.

    Columns: rule, split, arguments, productivity, coverage and, unless the cue is planted,
    paper_productivity and paper_coverage (percent).
    """
    tables = {}
    for rule, split in product(RULES, (*SPLITS, ALL)):
        chosen = [one for one in corpus.original if split in (ALL, one.split)]
        tables[rule, split] = cue_table(chosen, rule=rule).query("cue == @NOT")
    columns = ["rule", "split", "arguments", "productivity", "coverage"]
    table = stacked(tables, "rule", "split")[columns]
    return table if corpus.planted else _with_paper(table, table["split"].notna())


def halves_of(arguments: Sequence[Argument]) -> dict[str, list[list[Argument]]]:
    """Return the originals, the counterparts, and each original that has one with it: `HALVES`."""
    original = [[one] for one in arguments if not one.adversarial]
    counterparts = {one.id: [one] for one in arguments if one.adversarial}
    both = [own + counterparts.get(own[0].id + MARK, []) for own in original]
    paired = [own for own in both if len(own) > 1]
    return dict(zip(HALVES, (original, [*counterparts.values()], paired), strict=True))


def _with_paper(table: pd.DataFrame, rows: pd.Series) -> pd.DataFrame:
    """Add the paper's figures for ``not``, in the rows that they can be compared with."""
    for measure in ("productivity", "coverage"):
        published = (f"{measure} of not, " + table["split"]).map(values_of("Niven"))
        table[f"paper_{measure}"] = published.where(rows).astype(float)
    return table
