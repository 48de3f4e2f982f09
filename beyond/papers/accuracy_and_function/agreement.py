"""Does a verb agree with its subject, and through the edges of which heads?

A *minimal pair* is a text and the same text with the verb in the other number: "the keys to the
cabinet are" and "the keys to the cabinet is".  The verb of the text is the agreeing form.  Subject
and verb are apart: other words stand between them.  A causal language model reads the *prefix*
before the verb; a masked language model reads the sentence with the verb masked.  The outcome is
the *log-odds*: the log-probability of the agreeing form minus that of the other form.  A form of
several tokens has the sum of their log-probabilities, which needs a causal model.

In each head, the edge goes from the position that predicts the verb to the subject.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import rankdata

from beyond.papers.accuracy_and_function import CODE
from beyond.papers.common.edge_cuts import DROPPED, MOST_ATTENDED
from beyond.papers.common.head_edges import (
    EFFECTS,
    LOG_PROBABILITY,
    NEXT_TOKEN,
    EdgeCase,
    HeadCut,
    Tokens,
    attention_and_effects,
    cut_effects,
    log_probabilities,
    tokens_of_word,
)
from beyond.papers.common.statistics import correlation
from beyond.papers.sinks.lenses import with_ratio
from helpers.cache import cached
from helpers.data.links import read_links
from helpers.data.records import Record, cluster_of, evenly_spaced
from helpers.errors import InputError, ModelError
from helpers.metrics.head_counts import HeadCounts
from helpers.metrics.heads import head_rows
from helpers.metrics.statistics import Estimate, cluster_sums
from helpers.model.loading import Model
from helpers.store.store import Store

SUBJECT = "nsubj"
SUBJECTS = frozenset({SUBJECT, "nsubjpass", "nsubj:pass"})
AUXILIARIES = frozenset({"aux", "auxpass", "aux:pass", "cop"})
NUMBERS = {
    "is": "are", "was": "were", "has": "have", "does": "do",
    "are": "is", "were": "was", "have": "has", "do": "does",
}  # fmt: skip
PRONOUNS_WITHOUT_S = frozenset({"i", "you", "we", "they", "these", "those"})  # "they see"
ABLATED_HEADS = 20
CHANGES = (DROPPED, MOST_ATTENDED)
ALL_DISTANCES = "all"
DISTANCES = {ALL_DISTANCES: (1, np.inf), "1": (1, 1), "2 to 4": (2, 4), "5 and more": (5, np.inf)}
GIVEN_ATTENTION = "accuracy given attention"


class MinimalPair(NamedTuple):
    """An edge case, whose continuations are the agreeing form and the other one.

    ``between`` is the number of words between subject and verb.
    """

    case: EdgeCase
    between: int


def other_number(verb: str, subject: str, known_words: Collection[str] = ()) -> str | None:
    """Change the number of a verb in the present tense: "sees" to "see", "are" to "is".

    A verb without -s may be in another tense.  Therefore it counts only after a subject that ends
    in -s or is one of `PRONOUNS_WITHOUT_S`: a form with -s would be wrong there in any tense.

    Parameters
    ----------
    verb, subject
        Words in lower case.
    known_words
        The other form must be one of these, or of `NUMBERS`.  Without this, "took" would have the
        other form "tooks".

    Returns
    -------
    str or None
        The other form, if there is one.
    """
    if verb in NUMBERS:
        return NUMBERS[verb]
    form = None
    if verb.endswith("s"):
        form = verb.removesuffix("s")
    elif subject.endswith("s") or subject in PRONOUNS_WITHOUT_S:
        form = f"{verb}s"
    return form if verb.isalpha() and form in known_words else None


def agreeing_word(record: Record, verb: int) -> int:
    """Find the word that agrees with the subject of a verb: its first auxiliary, or the verb."""
    agreeing = verb
    for word, (head, relation) in enumerate(zip(record["heads"], record["relations"], strict=True)):
        if head - 1 == verb and relation in AUXILIARIES:
            agreeing = min(agreeing, word)
    return agreeing


def minimal_pair(
    encoder: Model, record: Record, article: str, known_words: Collection[str]
) -> MinimalPair | None:
    """Make a minimal pair of a sentence, of the first subject that allows one.

    Parameters
    ----------
    encoder
        A causal or a masked language model.
    record
        A sentence of a treebank.
    article
        Its article.
    known_words
        As for `other_number`.

    Returns
    -------
    MinimalPair or None
        A masked language model needs forms of one token each.
    """
    words = record["words"]
    links = read_links(record)
    for row in np.flatnonzero(~links.is_root):
        if links.relation[row] not in SUBJECTS:
            continue
        subject = int(links.word[row])
        parent = int(links.gold[row].argmax())
        verb = agreeing_word(record, parent)
        text = words[verb].lower()
        form = other_number(text, words[subject].lower(), known_words)
        between = verb - subject - 1
        if form is None or between < 1 or (verb != parent and text not in NUMBERS):
            continue
        forms = (word_ids(encoder, words, verb), word_ids(encoder, words, verb, form))
        make_case = prefix_case if encoder.objective == NEXT_TOKEN else masked_case
        case = make_case(encoder, record, (subject, verb), forms, article)
        if case is not None:
            return MinimalPair(case, between)
    return None


def word_ids(encoder: Model, words: list[str], word: int, form: str = "") -> Tokens:
    """List the token ids of a word of a sentence, or of another form in its place."""
    encoding = encoder.encode_words([*words[:word], form or words[word], *words[word + 1 :]])
    pairs = zip(encoding.ids, encoding.word_ids, strict=True)
    return tuple(token_id for token_id, number in pairs if number == word)


def prefix_case(
    _encoder: Model,
    record: Record,
    subject_and_verb: tuple[int, int],
    forms: tuple[Tokens, Tokens],
    article: str,
) -> EdgeCase:
    """Make the edge case of a causal language model, which reads what stands before the verb."""
    subject, verb = subject_and_verb
    end = tokens_of_word(record, verb)[0]
    last = (end - 1,)
    token_ids = tuple(record["inputs"]["input_ids"][:end])
    keys = tokens_of_word(record, subject)
    return EdgeCase(token_ids, last, keys, (last,), article, end - 1, forms)


def masked_case(
    encoder: Model,
    record: Record,
    subject_and_verb: tuple[int, int],
    forms: tuple[Tokens, Tokens],
    article: str,
) -> EdgeCase | None:
    """Make the edge case of a masked language model, which reads the sentence without the verb."""
    if max(map(len, forms)) > 1:
        return None
    subject, verb = subject_and_verb
    (position,) = tokens_of_word(record, verb)
    token_ids = list(record["inputs"]["input_ids"])
    token_ids[position] = encoder.tokenizer.mask_token_id
    keys = tokens_of_word(record, subject)
    masked = (position,)
    return EdgeCase(tuple(token_ids), masked, keys, (masked,), article, position, forms)


def minimal_pairs(encoder: Model, store: Store) -> Iterator[MinimalPair]:
    """Yield the minimal pairs of a treebank, of train and dev.

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
    known_words = {word.lower() for record in store.records() for word in record["words"]}
    for index, record in enumerate(store.records()):
        pair = minimal_pair(encoder, record, cluster_of(record, index), known_words)
        if pair is not None:
            yield pair


def agreement_tables(
    encoder: Model, store: Store, counts: HeadCounts, pairs: int
) -> dict[str, pd.DataFrame]:
    """Measure agreement, and through which heads' edges the subject decides it.

    Parameters
    ----------
    encoder
        A causal or a masked language model.
    store
        Its word-level store of a treebank; its records are read, not its maps.
    counts
        The counts of the store, for the accuracy of the heads.
    pairs
        The number of minimal pairs at most, spaced evenly.

    Returns
    -------
    dict of str to DataFrame
        ``agreement``: a row for all pairs and for each number of words between subject and verb,
        with the number of ``pairs``, ``right``, the percentage of pairs in which the agreeing form
        is more probable, and ``log_odds`` in nats, each with its interval over articles.
        ``agreement_heads``: a row for each head, with its ``accuracy`` in picking the subject of a
        verb (percent, on train); the mean ``attention`` on the edge; the first-order effect of the
        edge, ``first_order``; and for the `ABLATED_HEADS` with the largest of these, up or down,
        what the log-odds lose if the edge is ``dropped``, and if the ``most_attended`` other words
        lose as much attention; and their ``difference``.
        ``agreement_correlations``: `agreement_correlations`.

    Raises
    ------
    ModelError
        If the model does not predict words.
    InputError
        If there are fewer than two minimal pairs.
    """

    def compute() -> dict[str, pd.DataFrame]:
        chosen = evenly_spaced(list(minimal_pairs(encoder, store)), pairs)
        if len(chosen) < 2:
            raise InputError(
                "fewer than two sentences have a verb whose subject stands apart from it and that "
                "has a second form; give a treebank with more sentences"
            )
        heads = head_table(encoder, [pair.case for pair in chosen], counts)
        return {
            "agreement": agreement_table(encoder, chosen),
            "agreement_heads": heads,
            "agreement_correlations": agreement_correlations(heads),
        }

    inputs = {"store": store.key, "model": encoder.key, "pairs": pairs}
    return cached("agreement", compute, inputs=inputs, code=CODE)


def agreement_table(encoder: Model, pairs: list[MinimalPair]) -> pd.DataFrame:
    """Tabulate the share of pairs that are right, and the log-odds: see `agreement_tables`."""
    log_odds = log_probabilities(encoder, [pair.case for pair in pairs])
    between = np.array([pair.between for pair in pairs])
    articles = np.array([pair.case.article for pair in pairs])
    clusters = np.unique(articles)
    is_chosen = np.stack([(between >= low) & (between <= high) for low, high in DISTANCES.values()])
    is_chosen = is_chosen.T  # [pair, row]
    numbers = cluster_sums(is_chosen, articles, clusters)
    table = pd.DataFrame({"words_between": list(DISTANCES), "pairs": is_chosen.sum(axis=0)})
    values = {"right": 100.0 * (log_odds > 0), "log_odds": log_odds}
    for name, pair_values in values.items():
        sums = cluster_sums(pair_values[:, None] * is_chosen, articles, clusters)
        table = with_ratio(table, name, sums, numbers)
    return table


def head_table(encoder: Model, cases: list[EdgeCase], counts: HeadCounts) -> pd.DataFrame:
    """Tabulate the heads' accuracies, attention and effects: see `agreement_tables`."""
    # The verb is the parent of its subject, and the edge goes from the verb's place to it.
    accuracy = counts.of_split("train").accuracy(SUBJECT)[1]
    attention, first_order = attention_and_effects(encoder, cases)
    table = head_rows(
        encoder.layers, encoder.heads, accuracy=accuracy, attention=attention.mean(axis=0)
    )
    table = with_article_means(table, "first_order", first_order, cases)
    sizes = np.abs(first_order.mean(axis=0)).ravel()
    chosen = np.argsort(-sizes, kind="stable")[:ABLATED_HEADS]
    heads = [divmod(int(head), encoder.heads) for head in chosen]
    cuts = [HeadCut(*head, mode=mode) for mode in CHANGES for head in heads]
    lost = cut_effects(encoder, cases, cuts)[..., EFFECTS.index(LOG_PROBABILITY)]
    ablated = table.iloc[chosen][["layer", "head"]]
    dropped, most_attended = np.split(lost, len(CHANGES), axis=1)
    ablated = with_article_means(ablated, "dropped", dropped, cases)
    ablated = with_article_means(ablated, "most_attended", most_attended, cases)
    ablated = with_article_means(ablated, "difference", dropped - most_attended, cases)
    return table.merge(ablated, how="left", on=["layer", "head"])


def with_article_means(
    table: pd.DataFrame, name: str, values: Float[np.ndarray, "case ..."], cases: list[EdgeCase]
) -> pd.DataFrame:
    """Add the means over edge cases to the rows of a table, with intervals over articles."""
    articles = np.array([case.article for case in cases])
    clusters = np.unique(articles)
    flat = values.reshape(len(values), -1)
    sums = cluster_sums(flat, articles, clusters)
    totals = cluster_sums(np.ones_like(flat), articles, clusters)
    return with_ratio(table.copy(), name, sums, totals)


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
        subtracted from both.  The intervals resample heads.
    """
    ranks = {}
    for name in ("attention", "accuracy", "first_order"):
        ranks[name] = rankdata(heads[name].fillna(heads[name].min()))
    residuals = {}
    for name in ("accuracy", "first_order"):
        slope, intercept = np.polyfit(ranks["attention"], ranks[name], 1)
        residuals[name] = ranks[name] - slope * ranks["attention"] - intercept
    pairs = {
        "attention": (ranks["attention"], ranks["first_order"]),
        "accuracy": (ranks["accuracy"], ranks["first_order"]),
        GIVEN_ATTENTION: (residuals["accuracy"], residuals["first_order"]),
    }
    rows = []
    for predictor, sides in pairs.items():
        estimate = Estimate(np.nan, df=np.nan)  # for heads that are all alike
        if not np.isclose(np.ptp(sides, axis=1), 0).any():
            estimate = correlation(np.column_stack(sides))
        columns = estimate.columns("correlation", df=True)
        rows.append({"predictor": predictor, "heads": len(heads), **columns})
    return pd.DataFrame(rows)
