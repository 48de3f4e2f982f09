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
from helpers.metrics.head_counts import OFFSETS, HeadCounts, syntactic_heads, word_maps
from helpers.metrics.heads import (
    DIRECTIONS,
    POSSESSIVE_RELATIONS,
    Direction,
    head_label,
    head_rows,
    parse_head,
    picked_words,
    possessive_marks,
)
from helpers.metrics.reference import ALL, paper_names, paper_table1, relation_table, scheme_of
from helpers.metrics.statistics import (
    bootstrap_t_test,
    cluster_sums,
    holm,
    paired_difference,
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
    """An attention head and a fixed offset that are compared on a relation.

    Attributes
    ----------
    relation : str
    direction : int
        Index into `DIRECTIONS`.
    layer, head : int
        Indices from 0.
    offset : int
        Index into `OFFSETS`.
    """

    relation: str
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
        by_head = counts.by_article(counts.right, relation)
        by_offset = counts.by_article(counts.offset_right[:, choice.offset], relation)
        _, p_value = bootstrap_t_test(by_head - by_offset[:, None, None, None], seed=seed)
        row = _scores(counts, choice, seed=seed)
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
        lead, total = _lead_on_dev(counts, choice)
        _, p_value = bootstrap_t_test(lead, seed=seed)
        rows.append(
            {
                **_scores(counts, choice, "dev", column="dev_accuracy", seed=seed),
                "train_accuracy": counts.accuracy(relation, "train").max(),
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
    table = head_rows(layers, heads)
    if not relations:
        return table
    leads = []  # of each relation [direction, layer, head]
    for name in relations:
        by_offset = counts.accuracy(name, "train", offsets=True)
        leads.append(counts.accuracy(name, "train") - by_offset.max())
    best = np.concatenate(leads).argmax(axis=0)  # [layer, head], of relations times directions
    rows = []
    for (layer, head), index in np.ndenumerate(best):
        number, direction = divmod(int(index), len(DIRECTIONS))
        relation = relations[number]
        offset = _best(counts, relation, "train").offset
        choice = Choice(relation, direction, layer, head, offset)
        lead, total = _lead_on_dev(counts, choice)
        rows.append(
            {
                "relation": relation,
                "direction": DIRECTIONS[direction],
                "accuracy": counts.accuracy(relation, "dev")[direction, layer, head],
                **ratio(100 * lead, total, seed=seed).columns("margin"),
            }
        )
    return table.join(pd.DataFrame(rows))


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
    attention = sums[:, [0, 2]]
    if not attention.any():
        return rows.iloc[:0]
    table = []
    for number, row in enumerate(rows.to_dict("records")):
        attention_with, count_with, attention_without, count_without = sums[..., number].T
        with_relation = (attention_with, count_with)
        without_relation = (attention_without, count_without)
        table.append(
            {
                **row,
                "count": int(count_with.sum()),
                **ratio(*with_relation).columns("with"),
                **ratio(*without_relation).columns("without"),
                **paired_difference(without_relation, with_relation).columns("difference"),
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
    gold = syntactic_heads(example)
    relations = np.asarray(example.record["relations"], object)
    is_dependent = relations[:, None] == rows["relation"].to_numpy()  # [word, row]
    is_governor = (np.arange(len(gold))[:, None] == gold) @ is_dependent  # [word, row]
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
) -> list[tuple[str, int, int]]:
    """Answer for a sentence's possessors, from the 's and from the word: 1 is right, 0 is wrong."""
    words = example.word_positions
    weights = example.stored_attention[parse_head(head)].astype(np.float32)[words, words]
    picked = picked_words(weights, direction=direction)
    gold = syntactic_heads(example)
    article = cluster_of(example.record, example.index)
    answers = []
    for possessor, mark in possessive_marks(example.record).items():
        if example.record["relations"][possessor] == relation:
            from_mark = int(picked[mark] == gold[possessor])
            from_possessor = int(picked[possessor] == gold[possessor])
            answers.append((article, from_mark, from_possessor))
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
    rows = table[table["relation"] != ALL].set_index("relation")
    heads = rows["head"].map(parse_head).to_dict()
    directions = rows["direction"].to_dict()
    right = Counter[str]()
    for example in examples:
        gold = syntactic_heads(example)
        marks = possessive_marks(example.record)
        for word, relation in enumerate(example.record["relations"]):
            if relation in heads and gold[word] >= 0:
                weights = example.stored_attention[heads[relation]].astype(np.float32)
                query = np.array([marks.get(word, word) + example.offset])
                (picked,) = picked_words(weights, query, direction=directions[relation])
                right[relation] += int(picked == gold[word] + example.offset)
    with_special = 100 * rows.index.map(right) / rows["count"]
    changes = rows[["head", "direction", "accuracy"]].assign(with_special=with_special)
    return changes.assign(change=with_special - rows["accuracy"]).reset_index()


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
    head = np.unravel_index(accuracy.argmax(), accuracy.shape)
    offset = counts.accuracy(relation, split, offsets=True).argmax()
    return Choice(relation, *map(int, head), int(offset))


def _scores(
    counts: HeadCounts,
    choice: Choice,
    split: str | None = None,
    *,
    column: str = "accuracy",
    seed: int,
) -> dict[str, object]:
    """Score a head and an offset on a split: the part of a row that tables share."""
    relation, direction, layer, head, offset = choice
    right = counts.by_article(counts.right[:, direction, layer, head], relation, split)
    total = counts.by_article(counts.total, relation, split)
    return {
        "relation": relation,
        "head": head_label(layer, head),
        "direction": DIRECTIONS[direction],
        **ratio(100 * right, total, seed=seed).columns(column),
        "baseline": counts.accuracy(relation, split, offsets=True)[offset],
        "baseline_offset": OFFSETS[offset],
    }


def _lead_on_dev(
    counts: HeadCounts, choice: Choice
) -> tuple[Int[np.ndarray, " article"], Int[np.ndarray, " article"]]:
    """Count, for each article of dev, by how many words a head leads an offset, and all words."""
    relation, direction, layer, head, offset = choice
    right = counts.by_article(counts.right[:, direction, layer, head], relation, "dev")
    by_offset = counts.by_article(counts.offset_right[:, offset], relation, "dev")
    return right - by_offset, counts.by_article(counts.total, relation, "dev")


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
    words = pd.DataFrame(rows)
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
