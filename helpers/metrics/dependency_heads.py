"""Single attention heads as syntactic classifiers: Table 1 of the paper (section 4.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from helpers.data.records import Record, Sentence, cluster_of
from helpers.data.treebank import parse_words
from helpers.errors import InputError
from helpers.metrics.head_counts import OFFSETS, HeadCounts, word_maps
from helpers.metrics.heads import (
    DIRECTIONS,
    POSSESSIVE_RELATIONS,
    Direction,
    Question,
    gold_links,
    head_label,
    head_rows,
    parse_head,
    predict_link,
)
from helpers.metrics.reference import ALL, paper_names, paper_table1, relation_table, scheme_of
from helpers.metrics.statistics import (
    Estimate,
    bootstrap_intervals,
    bootstrap_t_test,
    cluster_sums,
    holm,
    paired_interval,
    ratio,
)
from helpers.store.store import Example

COLUMNS = (
    "relation", "count", "head", "direction", "accuracy", "accuracy_low", "accuracy_high",
    "baseline",
    "baseline_offset", "paper_head", "paper_accuracy", "paper_baseline", "p_best",
)  # fmt: skip
OF_HEAD = ["relation", "head", "direction"]
HELD_OUT_COLUMNS = (
    *OF_HEAD, "train_accuracy", "dev_accuracy", "dev_accuracy_low", "dev_accuracy_high",
    "train_count", "dev_count",
    "baseline", "baseline_offset", "margin", "margin_low", "margin_high", "p_holm",
)  # fmt: skip
SAME_CONVENTIONS = "same conventions"


class Choice(NamedTuple):
    """The attention head and the fixed offset that are best for a relation.

    Attributes
    ----------
    direction : int
        Index into `DIRECTIONS`.
    layer, head : int
        Indices from 0.
    offset : int
        Index into `OFFSETS`.
    """

    direction: int
    layer: int
    head: int
    offset: int


def dependency_heads(counts: HeadCounts, *, minimum: int = 100, seed: int = 0) -> pd.DataFrame:
    """Compute Table 1 as in the paper: the best head of each relation, scored where it is best.

    The interval does not take into account that the head was chosen on the same words:
    `held_out_heads` has the figures to argue with.

    Parameters
    ----------
    counts : HeadCounts
        What `helpers.metrics.head_counts.count_heads` returns.
    minimum : int
        Number of words that a relation needs.
    seed : int
        Seed of the bootstrap and of the permutation test.

    Returns
    -------
    DataFrame
        A row for each relation except the root, "All" first, then by ``count``.  Columns:

        - ``relation``, ``count`` (words), ``head``, ``direction``;
        - ``accuracy`` in percent, with a 95% bootstrap interval over articles;
        - ``baseline`` in percent and ``baseline_offset``: the best fixed offset, under the same
          rules;
        - ``paper_head``, ``paper_accuracy`` and ``paper_baseline`` of the Stanford relation that
          `helpers.metrics.reference.relation_table` gives;
        - ``p_best``: p-value of the best head against that offset, corrected for the selection
          among all heads and both directions.
    """
    rows = []
    for relation in counts.frequent(minimum):
        choice = _best(counts, relation)
        leads = _leads(counts, relation, choice.offset)
        _, p_value = bootstrap_t_test(leads, seed=seed)
        row = _scores(counts, relation, choice, seed=seed)
        rows.append({**row, "count": counts.size(relation), "p_best": p_value})
    table = pd.DataFrame(rows)
    names = paper_names(counts.names)
    in_paper = paper_table1().reindex(names.get(row["relation"]) for row in rows)
    for column in ("head", "accuracy", "baseline"):
        table[f"paper_{column}"] = in_paper[column].to_list()
    return table.reindex(columns=COLUMNS)


def held_out_heads(counts: HeadCounts, *, minimum: int = 100, seed: int = 0) -> pd.DataFrame:
    """Score single heads on dev; head, direction and fixed offset are chosen on train.

    Parameters
    ----------
    counts : HeadCounts
        What `helpers.metrics.head_counts.count_heads` returns.
    minimum : int
        Number of words that a relation needs in train.  It also needs a word in dev.
    seed : int
        Seed of the bootstrap and of the permutation test.

    Returns
    -------
    DataFrame
        A row for each relation, with `HELD_OUT_COLUMNS`: accuracies and ``baseline`` in percent;
        ``margin``, the accuracy of the head minus that of the offset on the same words of dev, in
        percentage points, with a 95% bootstrap interval over articles; ``p_holm``, the p-value of
        a margin above zero, adjusted for the number of relations.

    Raises
    ------
    InputError
        If the treebank has no train or no dev split.
    """
    for split in ("train", "dev"):
        if split not in counts.splits:
            raise InputError(
                f"the treebank has no {split} sentences, but heads are chosen on train and scored "
                "on dev; give a treebank with both (TRAIN,DEV), more sentences (--sentences), or "
                "more tokens for long ones (--max-tokens)"
            )
    rows = []
    for relation in _frequent_in_both(counts, minimum):
        choice = _best(counts, relation, "train")
        head = (choice.direction, choice.layer, choice.head)
        lead = _leads(counts, relation, choice.offset, "dev")[(slice(None), *head)]  # [article]
        total = counts.by_article(counts.total, relation, "dev")
        _, p_value = bootstrap_t_test(lead, seed=seed)
        rows.append(
            {
                **_scores(counts, relation, choice, "dev", column="dev_accuracy", seed=seed),
                "train_accuracy": counts.accuracy(relation, "train")[head],
                "dev_accuracy": counts.accuracy(relation, "dev")[head],
                "train_count": counts.size(relation, "train"),
                "dev_count": counts.size(relation, "dev"),
                **ratio(100 * lead, total, seed=seed).columns("margin"),
                "p_holm": p_value,
            }
        )
    table = pd.DataFrame(rows, columns=HELD_OUT_COLUMNS)
    return table.assign(p_holm=holm(table["p_holm"]))


def each_head(counts: HeadCounts, *, minimum: int = 100, seed: int = 0) -> pd.DataFrame:
    """Score every attention head on the relation that it does best.

    The relation and the direction are chosen on train: those for which the head is furthest above
    the best fixed offset of the relation.  They are scored on dev.

    Parameters
    ----------
    counts : HeadCounts
        What `helpers.metrics.head_counts.count_heads` returns.
    minimum : int
        Number of words that a relation needs in train.
    seed : int
        Seed of the bootstrap.

    Returns
    -------
    DataFrame
        A row for each head: ``layer`` and ``head`` (from 1), ``relation``, ``direction``,
        ``accuracy`` in percent, ``margin`` over the offset in percentage points, and the margin's
        95% bootstrap interval over articles.  Only ``layer`` and ``head`` if no relation is
        frequent enough.
    """
    relations = [name for name in _frequent_in_both(counts, minimum) if name != ALL]
    _, _, layers, heads = counts.right.shape
    if not relations:
        return head_rows(layers, heads)
    offset_accuracies = [counts.accuracy(name, "train", offsets=True) for name in relations]
    leads = [
        counts.accuracy(name, "train") - by_offset.max()
        for name, by_offset in zip(relations, offset_accuracies, strict=True)
    ]  # of each relation [direction, layer, head]
    best = np.concatenate(leads).argmax(axis=0)  # [layer, head], of relations times directions
    relation, direction = np.divmod(best, len(DIRECTIONS))
    table = head_rows(
        layers,
        heads,
        relation=np.array(relations)[relation],
        direction=np.array(DIRECTIONS)[direction],
    )
    for index, name in enumerate(relations):
        layer, head = np.nonzero(relation == index)
        chosen = (direction[layer, head], layer, head)
        offset = int(offset_accuracies[index].argmax())
        lead = _leads(counts, name, offset, "dev")[(slice(None), *chosen)]  # [article, head]
        total = counts.by_article(counts.total, name, "dev")
        totals = np.broadcast_to(total[:, None], lead.shape)
        low, high = bootstrap_intervals(100 * lead, totals, seed=seed)
        rows = layer * heads + head
        table.loc[rows, "accuracy"] = counts.accuracy(name, "dev")[chosen]
        table.loc[rows, "margin"] = 100 * lead.sum(axis=0) / total.sum()
        table.loc[rows, "margin_low"] = low
        table.loc[rows, "margin_high"] = high
    return table


def no_op_table(examples: Iterable[Example], held_out: pd.DataFrame) -> pd.DataFrame:
    """Compare a head's attention to special tokens with and without its relation (section 3.2).

    The paper suggests that a head attends to special tokens when its relation is absent.

    Parameters
    ----------
    examples : iterable of Example
        Word-level maps of a treebank; only dev is read.
    held_out : DataFrame
        What `held_out_heads` returns.

    Returns
    -------
    DataFrame
        A row for each of its heads, except that of "All".  Columns:

        - ``relation``, ``head``, ``direction``;
        - ``count``: number of words of dev that the relation is read from;
        - ``with``: share of attention that special tokens get from these words;
        - ``without``: the same from words that none of the head's relations is read from;
        - ``difference``: ``without`` minus ``with``.

        Shares have 95% bootstrap intervals over articles.  There is no row if the model has no
        special tokens.
    """
    rows = held_out.loc[held_out["relation"] != ALL, OF_HEAD]
    parts = []  # of each sentence [part, row]
    articles = []
    for example in examples:
        if example.record.get("split") == "dev":
            parts.append(_special_token_sums(example, rows))
            articles.append(cluster_of(example.record, example.index))
    if not parts:
        return rows.iloc[:0]
    article_ids, names = pd.factorize(np.array(articles))
    sums = cluster_sums(np.array(parts), article_ids, np.arange(len(names)))
    attention_with, count_with, attention_without, count_without = np.moveaxis(sums, 1, 0)
    if not (attention_with.any() or attention_without.any()):
        return rows.iloc[:0]
    table = []
    for number, row in enumerate(rows.to_dict("records")):
        with_relation = attention_with[:, number], count_with[:, number]
        without_relation = attention_without[:, number], count_without[:, number]
        share_with = ratio(*with_relation)
        share_without = ratio(*without_relation)
        low, high = paired_interval(without_relation, with_relation)
        difference = Estimate(share_without.value - share_with.value, float(low[0]), float(high[0]))
        table.append(
            {
                **row,
                "count": int(count_with[:, number].sum()),
                **share_with.columns("with"),
                **share_without.columns("without"),
                **difference.columns("difference"),
            }
        )
    return pd.DataFrame(table)


def _special_token_sums(example: Example, rows: pd.DataFrame) -> Float[np.ndarray, "part row"]:
    """Sum attention to special tokens over the words of a sentence, for the head of each row.

    The parts: attention from the words that the relation is read from, and their number; attention
    from the words that none of the head's relations is read from, and their number.
    """
    labels = rows["head"].to_numpy()
    layer_and_head = np.array([parse_head(label) for label in labels], int).reshape(-1, 2)
    layer, head = layer_and_head.T
    _, to_special = word_maps(example)
    attention = to_special[layer, head].T  # [word, row]
    gold = np.asarray(example.record["heads"]) - 1  # -1 for the root
    relations = np.asarray(example.record["relations"], object)
    is_dependent = relations[:, None] == rows["relation"].to_numpy()  # [word, row]
    is_governor = np.zeros_like(is_dependent)
    np.logical_or.at(is_governor, gold[gold >= 0], is_dependent[gold >= 0])
    reverse = (rows["direction"] == DIRECTIONS[1]).to_numpy()
    has_relation = np.where(reverse, is_governor, is_dependent)
    same_head = labels[:, None] == labels  # [row, row]
    has_none = ~(has_relation @ same_head)
    parts = (attention * has_relation, has_relation, attention * has_none, has_none)
    return np.array([part.sum(axis=0) for part in parts])


def possessives(examples: Iterable[Example], held_out: pd.DataFrame) -> pd.DataFrame:
    """Compare reading the head of possessives from the 's and from the possessor (section 4.2).

    Parameters
    ----------
    examples : iterable of Example
        Word-level maps of a treebank; only dev is read.
    held_out : DataFrame
        What `held_out_heads` returns.

    Returns
    -------
    DataFrame
        One row, or none without a possessor that has an 's: ``relation``, ``head``, ``direction``,
        ``count``; accuracy in percent from the 's (``mark``) and from the ``possessor``, and their
        ``difference``, with 95% bootstrap intervals over articles.
    """
    chosen = held_out[held_out["relation"].isin(POSSESSIVE_RELATIONS)].head(1)
    answers = []
    if len(chosen):
        for example in examples:
            if example.record.get("split") == "dev":
                answers += _possessive_answers(example, **chosen[OF_HEAD].iloc[0])
    table = pd.DataFrame(answers, columns=["article", "mark", "possessor"])
    table["difference"] = table["mark"] - table["possessor"]
    by_article = table.groupby("article")
    row = chosen[OF_HEAD].assign(count=len(table))
    for name in ("mark", "possessor", "difference"):
        estimate = ratio(100 * by_article[name].sum(), by_article.size())
        row = row.assign(**estimate.columns(name))
    return row[row["count"] > 0]


def _possessive_answers(
    example: Example, *, relation: str, head: str, direction: Direction
) -> list[dict[str, object]]:
    """Answer the questions about a sentence's possessors with an 's: 1 is right, 0 is wrong."""
    words = example.word_positions
    weights = example.attention[parse_head(head)].astype(np.float32)[words, words]
    answers = []
    for question in gold_links(example.record):
        if question.relation == relation and question.mark is not None:
            _, from_mark = predict_link(question, weights, direction)
            _, from_possessor = predict_link(question._replace(mark=None), weights, direction)
            answers.append(
                {
                    "article": cluster_of(example.record, example.index),
                    "mark": int(from_mark),
                    "possessor": int(from_possessor),
                }
            )
    return answers


def with_special_tokens(examples: Iterable[Example], table: pd.DataFrame) -> pd.DataFrame:
    """Compute Table 1's accuracies if special tokens can be picked as well (footnote 2).

    Parameters
    ----------
    examples : iterable of Example
        Word-level maps of a treebank.
    table : DataFrame
        What `dependency_heads` returns for it.

    Returns
    -------
    DataFrame
        A row for each relation except "All": ``relation``, ``head``, ``direction``, ``accuracy``
        (as in ``table``) and ``with_special`` in percent, and ``change`` in percentage points.
    """
    rows = table[table["relation"] != ALL]
    heads = {row.relation: parse_head(row.head) for row in rows.itertuples()}
    directions = {row.relation: row.direction for row in rows.itertuples()}
    right = dict.fromkeys(heads, 0)
    for example in examples:
        for question in gold_links(example.record):
            relation = question.relation
            if relation in heads:
                at_positions = _at_positions(question, example.offset)
                weights = example.attention[heads[relation]].astype(np.float32)
                _, is_right = predict_link(at_positions, weights, directions[relation])
                right[relation] += int(is_right)
    changes = rows[[*OF_HEAD, "accuracy"]].reset_index(drop=True)
    right_counts = rows["relation"].map(right).to_numpy()
    changes["with_special"] = 100 * right_counts / rows["count"].to_numpy()
    changes["change"] = changes["with_special"] - changes["accuracy"]
    return changes


def _at_positions(question: Question, offset: int) -> Question:
    """Count the words of a syntactic question from the first special token."""
    word = question.word if question.mark is None else question.mark
    gold = tuple(head + offset for head in question.gold)
    return Question(question.relation, word + offset, gold)


def split_words(
    records: Iterable[Record], word_ids: Callable[[list[str]], list[int | None]]
) -> pd.DataFrame:
    """Count words by their number of tokens (section 4.1).

    Parameters
    ----------
    records : iterable of dict
        Records with ``words``.
    word_ids : callable
        Gives the index of the word that each token of some words is from; None for a special token.

    Returns
    -------
    DataFrame
        A row for each number of ``tokens``: number of ``words``, and their ``share`` of all words.
    """
    lengths = Counter[int]()
    for record in records:
        tokens = Counter(word for word in word_ids(record["words"]) if word is not None)
        lengths.update(tokens.values())
    table = pd.DataFrame(sorted(lengths.items()), columns=["tokens", "words"])
    return table.assign(share=table["words"] / table["words"].sum())


def beside_paper(table: pd.DataFrame) -> pd.DataFrame:
    """Select the rows of Table 1 that the paper has, with the paper's figures next to ours.

    Parameters
    ----------
    table : DataFrame
        What `dependency_heads` returns.

    Returns
    -------
    DataFrame
        Heads and accuracies of the paper and of this run.  ``fit`` is how well the corpus's
        relation corresponds to the paper's ("exact", "close", "rough"); ``note`` says if the
        paper's figure is in doubt.
    """
    correspondence = relation_table()
    of_scheme = correspondence[correspondence["scheme"] == scheme_of(table["relation"])]
    fits = of_scheme.set_index("relation")["fit"]
    ours = table[table["paper_accuracy"].notna()]
    names = ours["relation"].map(paper_names(table["relation"]))
    return pd.DataFrame(
        {
            "relation": ours["relation"],
            "in the paper": names,
            "fit": ours["relation"].map(fits).astype(object).fillna("exact"),
            "paper: head": ours["paper_head"],
            "accuracy": ours["paper_accuracy"],
            "offset": ours["paper_baseline"],
            "here: head": ours["head"],
            "accuracy ": ours["accuracy"].round(1),
            "offset ": ours["baseline"].round(1),
            "direction": ours["direction"],
            "note": names.map(paper_table1()["note"]).fillna(""),
        }
    ).reset_index(drop=True)


def _frequent_in_both(counts: HeadCounts, minimum: int) -> list[str]:
    """List the relations that are frequent enough in train and occur in dev."""
    return [name for name in counts.frequent(minimum, "train") if counts.size(name, "dev")]


def _best(counts: HeadCounts, relation: str, split: str | None = None) -> Choice:
    """Choose the head and the offset that are most accurate in a split, or (None) in all."""
    accuracy = counts.accuracy(relation, split)  # [direction, layer, head]
    direction, layer, head = map(int, np.unravel_index(accuracy.argmax(), accuracy.shape))
    offset = int(counts.accuracy(relation, split, offsets=True).argmax())
    return Choice(direction, layer, head, offset)


def _scores(
    counts: HeadCounts,
    relation: str,
    choice: Choice,
    split: str | None = None,
    *,
    column: str = "accuracy",
    seed: int,
) -> dict[str, object]:
    """Score a choice of head and offset on a split: the part of a row that tables share."""
    right_by_row = counts.right[:, choice.direction, choice.layer, choice.head]
    right = counts.by_article(right_by_row, relation, split)
    total = counts.by_article(counts.total, relation, split)
    return {
        "relation": relation,
        "head": head_label(choice.layer, choice.head),
        "direction": DIRECTIONS[choice.direction],
        **ratio(100 * right, total, seed=seed).columns(column),
        "baseline": counts.accuracy(relation, split, offsets=True)[choice.offset],
        "baseline_offset": OFFSETS[choice.offset],
    }


def _leads(
    counts: HeadCounts, relation: str, offset: int, split: str | None = None
) -> Int[np.ndarray, "article direction layer head"]:
    """Count, for each article, by how many words every head is ahead of a fixed offset."""
    by_head = counts.by_article(counts.right, relation, split)
    by_offset = counts.by_article(counts.offset_right[:, offset], relation, split)
    return by_head - by_offset[:, None, None, None]


def silver_quality(treebank: Iterable[Sentence], *, minimum: int = 1) -> pd.DataFrame | None:
    """Compare spaCy's parses with the dev trees of a treebank of Universal Dependencies.

    Parameters
    ----------
    treebank : iterable of Sentence
        Sentences with gold trees.
    minimum : int
        Number of words that a relation needs.

    Returns
    -------
    DataFrame or None
        See `attachment_agreement`; None if the treebank has another scheme.
    """
    gold = [sentence for sentence in treebank if sentence.split == "dev"]
    relations: set[str] = set()
    for tree in gold:
        relations.update(tree.relations)
    if scheme_of(relations) != "ud":
        return None
    silver = parse_words([tree.words for tree in gold])
    return attachment_agreement(gold, silver, minimum=minimum)


def attachment_agreement(
    gold: Sequence[Sentence], silver: Sequence[Sentence], *, minimum: int = 1
) -> pd.DataFrame:
    """Compare the heads of a CLEAR parse (spaCy) with those of a Universal Dependencies tree.

    The schemes disagree about what a head is.  A word is *comparable* if both give it the same
    head: its relation is marked "same" in `helpers.metrics.reference.relation_table`, and neither
    it nor its gold head has a copula, whose place at the top of the clause can move the arc.

    Parameters
    ----------
    gold, silver : sequence of Sentence
        Trees and parses of the same words.
    minimum : int
        Number of words that a relation needs.

    Returns
    -------
    DataFrame
        A row for "All" words, one for the comparable ones ("same conventions"), and one for each
        gold relation, most frequent first.  Columns:

        - ``relation``, ``count`` and ``comparable`` (numbers of words);
        - ``attachment``: words with the same head, in percent (unlabelled);
        - ``attachment_comparable``: the same among comparable words;
        - ``inverted``: words to which the parse attaches their gold head, in percent;
        - ``silver_relation``: the most frequent relation in the parse.
    """
    correspondence = relation_table().query("scheme == 'ud' and attachment == 'same'")
    same_head_relations = set(correspondence["relation"])
    rows = []
    for tree, parse in zip(gold, silver, strict=True):
        arcs = list(zip(tree.heads, tree.relations, strict=True))
        has_copula = {head for head, relation in arcs if relation == "cop"}
        for word, (head, relation) in enumerate(arcs, start=1):
            near_copula = word in has_copula or head in has_copula
            rows.append(
                {
                    "relation": relation,
                    "comparable": relation in same_head_relations and not near_copula,
                    "agrees": parse.heads[word - 1] == head,
                    "inverted": head > 0 and parse.heads[head - 1] == word,
                    "silver_relation": parse.relations[word - 1],
                }
            )
    columns = ["relation", "comparable", "agrees", "inverted", "silver_relation"]
    words = pd.DataFrame(rows, columns=columns)
    table = [
        _agreement_row(ALL, words),
        _agreement_row(SAME_CONVENTIONS, words[words["comparable"]]),
    ]
    for relation, size in Counter(words["relation"]).most_common():
        if size >= minimum:
            table.append(_agreement_row(relation, words[words["relation"] == relation]))
    return pd.DataFrame(table)


def _agreement_row(name: str, words: pd.DataFrame) -> dict[str, object]:
    """Compute the agreement of parses and trees about some words."""
    silver_relations = Counter(words["silver_relation"]).most_common(1)
    return {
        "relation": name,
        "count": len(words),
        "comparable": words["comparable"].sum(),
        "attachment": 100 * words["agrees"].mean(),
        "attachment_comparable": 100 * words["agrees"][words["comparable"]].mean(),
        "inverted": 100 * words["inverted"].mean(),
        "silver_relation": silver_relations[0][0] if silver_relations else "",
    }
