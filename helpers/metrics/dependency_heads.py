"""Single attention heads as syntactic classifiers: Table 1 of the paper (section 4.2)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from helpers.data.records import Record, Sentence, cluster_of
from helpers.data.treebank import parse_words
from helpers.errors import InputError
from helpers.metrics.head_counts import OFFSETS, HeadCounts, syntactic_heads
from helpers.metrics.heads import (
    DIRECTIONS,
    POSSESSIVE_RELATIONS,
    gold_links,
    head_label,
    head_rows,
    parse_head,
    predict_link,
)
from helpers.metrics.reference import ALL, paper_names, paper_table1, relation_table, scheme_of
from helpers.metrics.statistics import (
    bootstrap_intervals,
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
        row, _, by_offset = _scores(counts, choice, column="accuracy", seed=seed)
        by_head = counts.by_article(counts.right, relation)
        _, p_value = bootstrap_t_test(by_head - by_offset[:, None, None, None], seed=seed)
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
        row, by_head, by_offset = _scores(counts, choice, "dev", column="dev_accuracy", seed=seed)
        _, p_value = bootstrap_t_test(by_head - by_offset, seed=seed)
        rows.append(
            {
                **row,
                "train_accuracy": counts.accuracy(relation, "train").max(),
                "train_count": counts.size(relation, "train"),
                "dev_count": counts.size(relation, "dev"),
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
    table = head_rows(*counts.right.shape[2:])
    relations = _frequent_in_both(counts, minimum)[1:]  # without `ALL`
    choices = [_best(counts, relation, "train") for relation in relations]
    if not choices:
        return table
    leads = []  # of each relation [direction, layer, head]
    for relation in relations:
        by_offset = counts.accuracy(relation, "train", offsets=True)
        leads.append(counts.accuracy(relation, "train") - by_offset.max())
    best = np.concatenate(leads).argmax(axis=0)  # [layer, head], of relations times directions
    rows = []
    for (layer, head), index in np.ndenumerate(best):
        number, direction = divmod(int(index), len(DIRECTIONS))
        choice = choices[number]._replace(direction=direction, layer=layer, head=head)
        row, _, _ = _scores(counts, choice, "dev", column="accuracy", seed=seed)
        rows.append(row)
    columns = ["relation", "direction", "accuracy", "margin", "margin_low", "margin_high"]
    return table.join(pd.DataFrame(rows)[columns])


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
    by_article: dict[str, np.ndarray] = defaultdict(lambda: np.zeros((4, len(rows))))
    for example in examples:
        if example.record.get("split") == "dev":
            sums = _special_token_sums(example, rows)
            by_article[cluster_of(example.record, example.index)] += sums
    if not any(sums[[0, 2]].any() for sums in by_article.values()):  # no special tokens
        return rows.iloc[:0]
    table = []
    parts = np.array(list(by_article.values())).transpose(2, 1, 0)  # [row, part, article]
    for row, sums in zip(rows.to_dict("records"), parts, strict=True):
        with_relation = tuple(sums[:2])
        without_relation = tuple(sums[2:])
        table.append(
            {
                **row,
                "count": int(sums[1].sum()),
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
    relations = np.asarray(example.record["relations"], object)
    gold = syntactic_heads(example)
    words = np.arange(len(gold))
    masks = []
    for row in rows.itertuples():
        is_dependent = relations == row.relation
        is_governor = np.isin(words, gold[is_dependent])
        masks.append(is_dependent if row.direction == DIRECTIONS[0] else is_governor)
    has_relation = np.array(masks)  # [row, word]
    labels = rows["head"].to_numpy()
    has_none = ~((labels[:, None] == labels) @ has_relation)
    layers, heads = np.array([parse_head(label) for label in labels]).T
    positions = example.word_positions
    maps = example.attention[layers, heads, positions]  # [row, word, key]
    before = maps[..., : positions.start].sum(axis=-1)
    attention = before + maps[..., positions.stop :].sum(axis=-1)  # to special tokens
    parts = (attention * has_relation, has_relation, attention * has_none, has_none)
    return np.array([part.sum(axis=1) for part in parts])


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
    row = held_out.loc[held_out["relation"].isin(POSSESSIVE_RELATIONS), OF_HEAD].head(1)
    answers = []
    for chosen in row.itertuples():
        for example in examples:
            if example.record.get("split") != "dev":
                continue
            words = example.word_positions
            weights = example.stored_attention[parse_head(chosen.head)].astype(np.float32)
            for question in gold_links(example.record):
                if question.mark is None:
                    continue
                answer = [cluster_of(example.record, example.index)]
                for word in (question, question._replace(mark=None)):
                    _, is_right = predict_link(word, weights[words, words], chosen.direction)
                    answer.append(int(is_right))
                answers.append(answer)
    table = pd.DataFrame(answers, columns=["article", "mark", "possessor"])
    table["difference"] = table["mark"] - table["possessor"]
    by_article = table.groupby("article")
    row = row.assign(count=len(table))
    for name in ("mark", "possessor", "difference"):
        estimate = ratio(100 * by_article[name].sum(), by_article.size())
        row = row.assign(**estimate.columns(name))
    return row[row["count"] > 0]


def special_candidates(counts: HeadCounts, *, seed: int = 0) -> pd.DataFrame:
    """Compute how heads' accuracies change if special tokens can be picked as well (footnote 2).

    Parameters
    ----------
    counts : HeadCounts
        What `helpers.metrics.head_counts.count_heads` returns.
    seed : int
        Seed of the bootstrap.

    Returns
    -------
    DataFrame
        A row for each attention head, with ``layer``, ``head``, and the ``direction`` in which it
        finds the syntactic heads of more words.  ``accuracy`` and ``with_special`` are its
        accuracies over all words without and with special tokens, in percent.  ``change`` is the
        difference in percentage points, with a 95% bootstrap interval over articles.
    """
    accuracy = counts.accuracy(ALL)  # [direction, layer, head]
    direction = accuracy.argmax(axis=0)
    of_sentence = counts.right[counts.rows(ALL)]  # every sentence has this row, in order
    changes = counts.right_with_special.astype(np.int64) - of_sentence
    by_article = cluster_sums(changes, counts.articles, np.unique(counts.articles))
    total = counts.by_article(counts.total, ALL)
    in_direction = np.choose(direction, np.moveaxis(100 * by_article, 1, 0))
    low, high = bootstrap_intervals(in_direction, total[:, None, None], seed=seed)
    change = in_direction.sum(axis=0) / total.sum()
    return head_rows(
        *direction.shape,
        direction=np.array(DIRECTIONS)[direction],
        accuracy=accuracy.max(axis=0),
        with_special=accuracy.max(axis=0) + change,
        change=change,
        change_low=low,
        change_high=high,
    )


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
    lengths: list[int] = []
    for record in records:
        tokens = pd.Series(word_ids(record["words"])).value_counts()
        lengths.extend(tokens)
    table = (
        pd.Series(lengths)
        .value_counts()
        .sort_index()
        .rename_axis("tokens")
        .reset_index(name="words")
    )
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
        Heads and accuracies of the paper and of this run.  ``in_paper`` is the relation's name
        there; ``fit`` is how well the corpus's
        relation corresponds to the paper's ("exact", "close", "rough"); ``note`` says if the
        paper's figure is in doubt.
    """
    correspondence = relation_table()
    of_scheme = correspondence[correspondence["scheme"] == scheme_of(table["relation"])]
    columns = [
        "relation", "in_paper", "fit", "paper_head", "paper_accuracy", "paper_baseline", "head",
        "accuracy", "baseline", "direction", "note",
    ]  # fmt: skip
    names = table["relation"].map(paper_names(table["relation"]))
    ours = table.assign(
        in_paper=names,
        fit=table["relation"].map(of_scheme.set_index("relation")["fit"]).fillna("exact"),
        note=names.map(paper_table1()["note"]).fillna(""),
    )
    return ours.loc[ours["paper_accuracy"].notna(), columns].round(1)


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
    column: str,
    seed: int,
) -> tuple[dict[str, object], Int[np.ndarray, " article"], Int[np.ndarray, " article"]]:
    """Score a head and an offset on a split.

    Returns
    -------
    row : dict
        The part of a row that tables share; ``column`` has the head's accuracy.
    by_head, by_offset : int array of shape (article,)
        Number of words that each of them gets right.
    """
    relation, direction, layer, head, offset = choice
    by_head = counts.by_article(counts.right[:, direction, layer, head], relation, split)
    by_offset = counts.by_article(counts.offset_right[:, offset], relation, split)
    total = counts.by_article(counts.total, relation, split)
    row = {
        "relation": relation,
        "head": head_label(layer, head),
        "direction": DIRECTIONS[direction],
        **ratio(100 * by_head, total, seed=seed).columns(column),
        "baseline": 100 * by_offset.sum() / total.sum(),
        "baseline_offset": OFFSETS[offset],
        **ratio(100 * (by_head - by_offset), total, seed=seed).columns("margin"),
    }
    return row, by_head, by_offset


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
    same_head_relations = list(correspondence["relation"])
    parts = []
    for tree, parse in zip(gold, silver, strict=True):
        words = np.arange(len(tree.words)) + 1
        heads = np.array(tree.heads)
        silver_heads = np.array(parse.heads)
        has_copula = heads[np.array(tree.relations) == "cop"]
        near_copula = np.isin(words, has_copula) | np.isin(heads, has_copula)
        columns = {
            "relation": tree.relations,
            "comparable": np.isin(tree.relations, same_head_relations) & ~near_copula,
            "agrees": silver_heads == heads,
            "inverted": (heads > 0) & (silver_heads[heads - 1] == words),
            "silver_relation": parse.relations,
        }
        parts.append(pd.DataFrame(columns))
    words = pd.concat(parts)
    groups = [
        (ALL, words),
        (SAME_CONVENTIONS, words[words["comparable"]]),
    ]
    for relation, size in Counter(words["relation"]).most_common():
        if size >= minimum:
            groups.append((relation, words[words["relation"] == relation]))
    table = []
    for name, group in groups:
        table.append(
            {
                "relation": name,
                "count": len(group),
                "comparable": group["comparable"].sum(),
                "attachment": 100 * group["agrees"].mean(),
                "attachment_comparable": 100 * group["agrees"][group["comparable"]].mean(),
                "inverted": 100 * group["inverted"].mean(),
                "silver_relation": Counter(group["silver_relation"]).most_common(1)[0][0],
            }
        )
    return pd.DataFrame(table)
