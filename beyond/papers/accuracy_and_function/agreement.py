"""Does a verb agree with its subject across another noun, and through the edges of which heads?

A *template* is the beginning of a sentence, "The key to the cabinets", with a verb.  The noun next
to the verb is the *attractor*.  Subject and attractor are singular or plural, all four ways equally
often, so that neither a preference for one form of the verb nor the nearest noun is right in more
than half.  A causal language model reads the *prefix* before the verb; a masked language model
reads a sentence in which the verb is masked.  The outcome is the *log-odds*: the log-probability of
the agreeing form minus that of the other form, in nats.  A form of several tokens has the sum of
their log-probabilities, which needs a causal model.

In each head, the edge goes from the position that predicts the verb to the subject.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple, cast

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from beyond.papers.accuracy_and_function import CODE
from beyond.papers.common.head_edges import (
    NEXT_TOKEN,
    EdgeCase,
    HeadCut,
    attention_and_effects,
    cut_effects,
    log_probabilities,
)
from beyond.papers.common.statistics import correlation
from beyond.papers.sinks.lenses import with_means
from helpers.cache import cached
from helpers.errors import ModelError
from helpers.metrics.head_counts import HeadCounts
from helpers.metrics.heads import head_rows
from helpers.metrics.statistics import Estimate, cluster_sums, ratio
from helpers.model.loading import Model
from helpers.store.store import Store

SUBJECT = "nsubj"
SUBJECTS = (
    "key", "picture", "author", "letter", "song", "teacher", "window", "book", "report", "friend",
    "door", "road", "plan", "name", "idea", "model", "story", "driver", "doctor", "player",
    "color", "engine", "rule", "map", "sister",
)  # fmt: skip
ATTRACTORS = ("cabinet", "house", "king", "town", "student", "machine", "company", "garden")
PREPOSITIONS = ("to", "of", "near", "behind", "from")
VERBS = (("is", "are"), ("was", "were"), ("has", "have"))  # the singular and the plural form
REST = ("been", "here", ".")  # after a masked verb; without "been" if the verb is not "have"
ABLATED_HEADS = 10
ALL = "all"
NUMBERS = "singular", "plural"
SAME, OTHER = "same number", "other number"
GIVEN_ATTENTION = "accuracy given attention"
POSITIVE = "heads with a positive effect"


class Template(NamedTuple):
    """A template; a form is of the verb, and the first form agrees."""

    words: tuple[str, ...]  # the prefix: a subject after "The", and the attractor at the end
    forms: tuple[str, str]
    noun: str  # the subject in the singular
    number: str  # of the subject
    attractor: str  # `SAME` or `OTHER`


def list_templates(count: int, *, seed: int = 0) -> list[Template]:
    """Make templates, of which each set of words has four: every number of both nouns.

    Parameters
    ----------
    count : int
        The number of templates, a multiple of four.
    seed : int
        Seed of the choice of words.  Subjects are equally frequent.
    """
    generator = np.random.default_rng(seed)
    templates = []
    for item in range(count // 4):
        subject = SUBJECTS[item % len(SUBJECTS)]
        preposition = PREPOSITIONS[generator.integers(len(PREPOSITIONS))]
        attractor = ATTRACTORS[generator.integers(len(ATTRACTORS))]
        forms = VERBS[generator.integers(len(VERBS))]
        for is_plural, is_other in product((False, True), repeat=2):
            nouns = [subject, attractor]
            for number, ends_in_s in enumerate((is_plural, is_plural != is_other)):
                nouns[number] += "s" * ends_in_s
            words = ("The", nouns[0], preposition, "the", nouns[1])
            singular, plural = forms
            agreeing = (plural, singular) if is_plural else (singular, plural)
            labels = (NUMBERS[is_plural], OTHER if is_other else SAME)
            templates.append(Template(words, agreeing, subject, *labels))
    return templates


def template_case(encoder: Model, template: Template) -> EdgeCase | None:
    """Make the edge case of a template, whose continuations are the agreeing form and the other.

    Returns
    -------
    EdgeCase or None
        Its article is the noun.  A masked language model needs forms of one token each.
    """
    verb = len(template.words)
    is_causal = encoder.objective == NEXT_TOKEN
    rest = REST if "have" in template.forms else REST[1:]
    forms = []
    for form in template.forms:
        words = [*template.words, form, *(() if is_causal else rest)]
        encoding = encoder.encode_words(words)
        groups = np.array([-1 if word is None else word for word in encoding.word_ids])
        tokens = np.flatnonzero(groups == verb)
        forms.append(tuple(encoding.ids[token] for token in tokens))
    token_ids = list(encoding.ids)
    keys = tuple(np.flatnonzero(groups == 1).tolist())
    position = int(tokens[0])
    if is_causal:
        token_ids = token_ids[:position]
        position -= 1
    elif max(map(len, forms)) > 1:
        return None
    else:
        token_ids[position] = cast("int", encoder.tokenizer.mask_token_id)
    return EdgeCase(tuple(token_ids), (position,), keys, (), template.noun, position, tuple(forms))


def agreement_tables(
    encoder: Model, store: Store, counts: HeadCounts, count: int
) -> dict[str, pd.DataFrame]:
    """Measure agreement, and through which heads' edges the subject decides it.

    Parameters
    ----------
    encoder
        A causal or a masked language model.
    store
        Its word-level store of a treebank, which names the counts.
    counts
        The counts of the store, for the accuracy of the heads.
    count
        The number of templates.

    Returns
    -------
    dict of str to DataFrame
        ``agreement``: `agreement_table`.  ``agreement_heads``: `head_table`.
        ``agreement_correlations``: `agreement_correlations`.  Intervals are over subjects.

    Raises
    ------
    ModelError
        If the model does not predict words.
    """
    if encoder.objective not in (NEXT_TOKEN, "masked-lm"):
        raise ModelError(
            "this model has no head that predicts words, so it gives no probability of a verb; "
            "choose a language model, such as smollm2 or bert-base-uncased"
        )

    def compute() -> dict[str, pd.DataFrame]:
        templates = []
        cases = []
        for template in list_templates(count):
            case = template_case(encoder, template)
            if case is not None:
                templates.append(template)
                cases.append(case)
        if not cases:
            raise ModelError("this model has no verb form of a single token, so none is predicted")
        heads = head_table(encoder, cases, counts)
        return {
            "agreement": agreement_table(encoder, templates, cases),
            "agreement_heads": heads,
            "agreement_correlations": agreement_correlations(heads),
        }

    inputs = {"store": store.key, "model": encoder.key, "templates": count}
    return cached("agreement", compute, inputs=inputs, code=CODE)


def agreement_table(
    encoder: Model, templates: Sequence[Template], cases: Sequence[EdgeCase]
) -> pd.DataFrame:
    """Tabulate how often the agreeing form is more probable.

    Returns
    -------
    DataFrame
        The table agreement.csv, a row for each number of the subject and of the attractor, and for
        all.  Columns: subject, attractor, ``templates``; ``right``, in percent, and ``log_odds``,
        in nats, with their intervals.
    """
    log_odds = log_probabilities(encoder, cases)
    numbers = np.array([template.number for template in templates])
    attractors = np.array([template.attractor for template in templates])
    nouns = np.array([case.article for case in cases])
    clusters = np.unique(nouns)
    rows = []
    for number, attractor in product((ALL, *NUMBERS), (ALL, SAME, OTHER)):
        has_number = (numbers == number) | (number == ALL)
        is_chosen = has_number & ((attractors == attractor) | (attractor == ALL))
        row = {"subject": number, "attractor": attractor, "templates": is_chosen.sum()}
        totals = cluster_sums(is_chosen, nouns, clusters)
        for name, values in {"right": 100.0 * (log_odds > 0), "log_odds": log_odds}.items():
            estimate = ratio(cluster_sums(values * is_chosen, nouns, clusters), totals)
            row |= estimate.columns(name, df=True)
        rows.append(row)
    return pd.DataFrame(rows)


def head_table(encoder: Model, cases: Sequence[EdgeCase], counts: HeadCounts) -> pd.DataFrame:
    """Tabulate the accuracy, the attention and the effects of each head.

    Returns
    -------
    DataFrame
        The table agreement_heads.csv, a row for each head: its ``accuracy`` in picking the subject
        of a verb (percent, on train); the mean ``attention`` on the edge; ``first_order``, the
        first-order effect of the edge on the log-odds; and for the `ABLATED_HEADS` with the largest
        of these, up or down, what the log-odds lose if the edge is ``dropped``.  Heads are chosen
        on every second subject, and their edges are dropped on the others.
    """
    # The verb is the parent of its subject, and the edge goes from the verb's place to it.
    accuracy = counts.of_split("train").accuracy(SUBJECT)[1]
    attention, first_order, _ = attention_and_effects(encoder, cases)
    table = head_rows(
        encoder.layers, encoder.heads, accuracy=accuracy, attention=attention.mean(axis=0)
    )
    nouns = [case.article for case in cases]
    table = with_means(table, "first_order", first_order, nouns)
    is_for_choice = np.isin(nouns, sorted(set(nouns))[::2])
    sizes = np.abs(first_order[is_for_choice].mean(axis=0)).ravel()
    chosen = np.argsort(-sizes, kind="stable")[:ABLATED_HEADS]
    cuts = [HeadCut(*divmod(int(head), encoder.heads)) for head in chosen]
    rest = [case for case, is_in in zip(cases, is_for_choice, strict=True) if not is_in]
    lost = cut_effects(encoder, rest, [cuts] * len(rest))
    ablated = table.iloc[chosen][["layer", "head"]].copy()
    ablated = with_means(ablated, "dropped", lost, [case.article for case in rest])
    return table.merge(ablated, how="left", on=["layer", "head"])


def agreement_correlations(heads: pd.DataFrame) -> pd.DataFrame:
    """Correlate the attention and the accuracy of heads with their first-order effects.

    Parameters
    ----------
    heads
        The table agreement_heads.csv.

    Returns
    -------
    DataFrame
        Spearman's ``correlation`` for each ``predictor``: the attention on the edge; the accuracy;
        and the accuracy after what a linear regression on the ranks of attention predicts is
        subtracted from both.  The rows are for all heads, and for those whose effect has an
        interval above 0 (`POSITIVE`).  The intervals resample heads.
    """
    rows = []
    for name, chosen in {ALL: heads, POSITIVE: heads[heads["first_order_low"] > 0]}.items():
        columns = ("attention", "accuracy", "first_order")
        ranks = {column: rankdata(chosen[column].fillna(heads[column].min())) for column in columns}
        pairs = {
            "attention": (ranks["attention"], ranks["first_order"]),
            "accuracy": (ranks["accuracy"], ranks["first_order"]),
        }
        if len(chosen) > 2:
            residuals = []
            for column in ("accuracy", "first_order"):
                slope, intercept = np.polyfit(ranks["attention"], ranks[column], 1)
                residuals.append(ranks[column] - slope * ranks["attention"] - intercept)
            pairs[GIVEN_ATTENTION] = tuple(residuals)
        for predictor, sides in pairs.items():
            estimate = Estimate(np.nan, df=np.nan)  # for heads that are all alike
            if len(chosen) and not np.isclose(np.ptp(sides, axis=1), 0).any():
                estimate = correlation(np.column_stack(sides))
            row = {"heads": name, "number": len(chosen), "predictor": predictor}
            rows.append(row | estimate.columns("correlation", df=True))
    return pd.DataFrame(rows)
