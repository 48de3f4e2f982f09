"""How good spaCy's trees are as annotation, compared with the gold trees of a treebank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import mode
from typing import cast

import numpy as np
import pandas as pd

from helpers.data.records import Corpus, Sentence
from helpers.data.text_files import ENGLISH
from helpers.data.treebank import pipeline, spacy_doc, to_sentence
from helpers.metrics.dependency_heads import best_offsets, frequent_in_both
from helpers.metrics.head_counts import HeadCounts, count_heads
from helpers.metrics.heads import DIRECTIONS, head_rows, parse_head
from helpers.metrics.reference import ALL, relation_table, scheme_of
from helpers.metrics.statistics import ratio, weighted_ratios
from helpers.progress import progress
from helpers.store.store import Example, Store
from helpers.study import Study

SAME_CONVENTIONS = "same conventions"


def save_silver_tables(
    study: Study, store: Store, held_out: pd.DataFrame, counts: HeadCounts
) -> None:
    """Save what a gold treebank has besides: universal relations, and automatic parses.

    Parameters
    ----------
    study : Study
        The study; automatic parses are English.
    store : Store
        Word-level maps of its treebank.
    held_out : DataFrame
        What `helpers.metrics.dependency_heads.held_out_heads` returns for its treebank.
    counts : HeadCounts
        What `helpers.metrics.head_counts.count_heads` returns for it.
    """
    minimum = study.settings.minimum_count
    if scheme_of(counts.names) != "ud":
        return
    has_silver = bool(study.settings.treebank) and study.language == ENGLISH
    if has_silver:
        records = cast("Corpus[Sentence]", study.treebank_corpus()).records()
        study.save_table(silver_quality(records, minimum=minimum), "silver_quality")
    if len(held_out):
        study.save_table(universal_relations(counts, minimum=minimum), "universal_relations")
        if has_silver:
            study.save_table(gold_and_silver(store, held_out), "gold_and_silver")


def universal_relations(counts: HeadCounts, *, minimum: int) -> pd.DataFrame:
    """Score every attention head by the universal parts of relations: ``nsubj:pass`` is ``nsubj``.

    With this table of several treebanks, the command ``compare`` scores the head that one of them
    chooses on the others.

    Parameters
    ----------
    counts : HeadCounts
        What `helpers.metrics.head_counts.count_heads` returns for Universal Dependencies.
    minimum : int
        Number of words that a relation needs in train.  It also needs a word in dev.

    Returns
    -------
    DataFrame
        A row for each relation, direction and head: ``train_accuracy`` in percent, and ``margin``,
        the accuracy on dev minus that of the fixed offset that is best on train, in percentage
        points.  At least one relation has to be frequent.
    """
    universal = [name.partition(":")[0] for name in counts.relation.tolist()]
    counts = replace(counts, relation=np.array(universal))
    scores = score_every_head(counts, minimum=minimum)
    return scores[["layer", "head", "direction", "relation", "train_accuracy", "margin"]]


def score_every_head(counts: HeadCounts, *, minimum: int) -> pd.DataFrame:
    """Score every attention head on every frequent relation, in both directions.

    Parameters
    ----------
    counts : HeadCounts
        What `helpers.metrics.head_counts.count_heads` returns.
    minimum : int
        Number of words that must count in train, in a layer and direction.

    Returns
    -------
    DataFrame
        A row for each relation, direction and head: ``layer`` and ``head`` (from 1),
        ``direction``, ``relation``; ``train_accuracy`` and, on dev, ``accuracy`` in percent;
        ``train_margin`` and ``margin`` over the fixed offset that is best on train, in percentage
        points.
    """
    train = counts.of_split("train")
    dev = counts.of_split("dev")
    heads = head_rows(*counts.right.shape[2:], numbers=counts.layer_numbers)
    tables = [heads.head(0).assign(relation="", direction="")]  # without relations, no rows
    for relation in frequent_in_both(train, dev, minimum):
        offsets = best_offsets(train, relation)[..., None]
        table = pd.concat([heads.assign(direction=name) for name in DIRECTIONS])
        for sentences, prefix in ((train, "train_"), (dev, "")):
            accuracy = sentences.accuracy(relation)  # [direction, layer, head]
            baseline = np.take_along_axis(sentences.rival_accuracy(relation), offsets, axis=-1)
            table[f"{prefix}accuracy"] = accuracy.ravel()
            table[f"{prefix}margin"] = (accuracy - baseline).ravel()
        is_enough = ~np.isnan(train.accuracy(relation, minimum=minimum)).ravel()
        tables.append(table[is_enough].assign(relation=relation))
    return pd.concat(tables, ignore_index=True)


def parse_words(sentences: Sequence[Sequence[str]]) -> list[Sentence]:
    """Parse sentences that are split into words already, to compare the parses with gold trees.

    Parameters
    ----------
    sentences : sequence of sequence of str
        The words of each sentence.

    Returns
    -------
    list of Sentence
        SpaCy's trees, without split and source.
    """
    docs = []
    for words in sentences:
        starts = [index == 0 for index in range(len(words))]  # so that each gets one root
        docs.append(spacy_doc(words, starts))
    parsed = pipeline().pipe(docs)
    bar = progress(parsed, "Parsing", unit=" sentences", total=len(sentences))
    return [to_sentence(doc[:], "", "") for doc in bar]


def silver_quality(treebank: Iterable[Sentence], *, minimum: int) -> pd.DataFrame:
    """Compare spaCy's parses with the dev trees of a treebank of Universal Dependencies.

    The schemes disagree about what a head is.  A word is *comparable* if both give it the same
    head: its relation is marked "same" in `helpers.metrics.reference.relation_table`, and neither
    it nor its gold head has a copula, whose place at the top of the clause can move the arc.

    Parameters
    ----------
    treebank : iterable of Sentence
        Sentences with gold trees of Universal Dependencies.
    minimum : int
        Number of words that a relation needs.

    Returns
    -------
    DataFrame
        A row for "All" words, one for the comparable ones ("same conventions"), and one for each
        gold relation, most frequent first.
        Columns:

        - ``relation``, ``count`` and ``comparable`` (numbers of words);
        - ``attachment``: words with the same head, in percent (unlabelled);
        - ``inverted``: words to which the parse attaches their gold head, in percent;
        - ``silver_relation``: the most frequent relation in the parse.
    """
    gold = [sentence for sentence in treebank if sentence.split == "dev"]
    correspondence = relation_table().query("scheme == 'ud' and attachment == 'same'")
    same_head_relations = list(correspondence["relation"])
    parts = []
    for tree, parse in zip(gold, parse_words([tree.words for tree in gold]), strict=True):
        words = np.arange(len(tree.words)) + 1
        heads = np.array(tree.heads)
        silver_heads = np.array(parse.heads)
        has_copula = heads[np.array(tree.relations) == "cop"]
        near_copula = np.isin(words, has_copula) | np.isin(heads, has_copula)
        columns = {
            "relation": tree.relations,
            "comparable": np.isin(tree.relations, same_head_relations) & ~near_copula,
            "attachment": 100.0 * (silver_heads == heads),
            "inverted": 100.0 * ((heads > 0) & (silver_heads[heads - 1] == words)),
            "silver_relation": parse.relations,
        }
        parts.append(pd.DataFrame(columns))
    words = pd.concat(parts)
    comparable = words[words["comparable"]]
    groups = [words.assign(relation=ALL), comparable.assign(relation=SAME_CONVENTIONS), words]
    table = (
        pd.concat(groups)
        .groupby("relation")
        .agg(
            count=("relation", "size"),
            comparable=("comparable", "sum"),
            attachment=("attachment", "mean"),
            inverted=("inverted", "mean"),
            silver_relation=("silver_relation", mode),
        )
    )
    counts = words["relation"].value_counts()
    frequent = counts.index[counts >= minimum]
    return table.loc[[ALL, SAME_CONVENTIONS, *frequent]].reset_index()


def gold_and_silver(examples: Iterable[Example], held_out: pd.DataFrame) -> pd.DataFrame:
    """Score the same attention heads on the same sentences with gold and with spaCy's trees.

    Only relations enter whose words have the same syntactic head in both schemes ("same" in
    `helpers.metrics.reference.relation_table`), and whose names in both mean the same in the
    paper's.

    Parameters
    ----------
    examples : iterable of Example
        Word-level maps of a treebank of Universal Dependencies, such as
        ``study.treebank_store()``; only dev is read.
    held_out : DataFrame
        What `helpers.metrics.dependency_heads.held_out_heads` returns for it.

    Returns
    -------
    DataFrame
        A row for each relation.  Columns:

        - ``relation`` and ``silver_relation``: its names in the treebank and in the parses;
        - ``head``, ``direction``: the head chosen on the gold trees of train;
        - ``gold_count``, ``silver_count``: numbers of words with that name;
        - ``gold``, ``silver``: the head's accuracy in percent, measured with either's trees;
        - ``difference``: ``silver`` minus ``gold`` in percentage points, paired by article.

        Accuracies have 95% bootstrap intervals over articles.
    """
    dev = [example for example in examples if example.record.get("split") == "dev"]
    parses = parse_words([example.record["words"] for example in dev])
    parsed = []
    for example, parse in zip(dev, parses, strict=True):
        trees = {"heads": parse.heads, "relations": parse.relations}
        parsed.append(replace(example, record={**example.record, **trees}))
    gold_counts = count_heads(dev)
    silver_counts = count_heads(parsed)
    rows = []
    for row in held_out.itertuples():
        silver_relation = _silver_relations().get(row.relation)
        if silver_relation not in silver_counts.names:
            continue
        head = (DIRECTIONS.index(row.direction), *parse_head(row.head))
        gold = gold_counts.right_of_head(row.relation, head)
        silver = silver_counts.right_of_head(silver_relation, head)
        right, total = (np.column_stack(pair) for pair in zip(silver, gold, strict=True))
        rows.append(
            {
                "relation": row.relation,
                "silver_relation": silver_relation,
                "head": row.head,
                "direction": row.direction,
                "gold_count": gold_counts.size(row.relation),
                "silver_count": silver_counts.size(silver_relation),
                **ratio(*gold).columns("gold"),
                **ratio(*silver).columns("silver"),
                **weighted_ratios(right, total, [1, -1]).columns("difference"),
            }
        )
    return pd.DataFrame(rows)


def _silver_relations() -> dict[str, str]:
    """Translate relations of Universal Dependencies whose words have the same head in CLEAR."""
    table = relation_table()
    is_same = (table["attachment"] == "same") & (table["paper"] != "")
    clear_relations = table[table["scheme"] == "clear"]
    merged = table[is_same].merge(clear_relations, on="paper", suffixes=("", "_silver"))
    return dict(zip(merged["relation"], merged["relation_silver"], strict=True))
