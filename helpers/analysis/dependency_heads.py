"""Individual heads as syntactic classifiers: Table 1 of the paper (section 4.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Int

from helpers.analysis.head_counts import OFFSETS, HeadCounts, word_maps
from helpers.analysis.heads import (
    DIRECTIONS,
    POSSESSIVE_RELATIONS,
    Question,
    answer,
    head_label,
    head_rows,
    parse_head,
    questions,
)
from helpers.analysis.paper import ALL, paper_names, paper_table1, relation_table, scheme_of
from helpers.analysis.statistics import (
    Estimate,
    bootstrap_intervals,
    cluster_sums,
    holm,
    paired_interval,
    ratio,
    sign_flip_test,
)
from helpers.data.records import Record, Sentence, cluster_of
from helpers.data.treebank import parse_words
from helpers.errors import InputError
from helpers.store.store import Example

COLUMNS = (
    "relation", "count", "head", "direction", "accuracy", "ci_low", "ci_high", "baseline",
    "baseline_offset", "paper_head", "paper_accuracy", "paper_baseline", "p_best",
)  # fmt: skip
OF_HEAD = ["relation", "head", "direction"]
HELD_OUT_COLUMNS = (
    *OF_HEAD, "train_accuracy", "dev_accuracy", "ci_low", "ci_high", "train_count", "dev_count",
    "baseline", "baseline_offset", "margin", "margin_low", "margin_high", "p_holm",
)  # fmt: skip


def dependency_heads(counts: HeadCounts, *, minimum: int = 100, seed: int = 0) -> pd.DataFrame:
    """Return Table 1 as the paper has it: the best head of each relation, scored where it is best.

    One row per relation with at least ``minimum`` words but the root, "All" first, then by count.
    The interval (95%, over articles) does not know that the head was chosen: `held_out_heads` has
    the figures to argue with.  ``baseline`` is the best fixed offset under the same rules; the
    paper's columns are those of the Stanford relation that `relation_table` gives.  ``p_best`` says
    that the best of all heads and both directions beats that offset, the choice counted in.
    """
    paper, names = paper_table1(), paper_names(counts.names)
    rows = []
    for name in counts.frequent(minimum):
        _, offset, row = _chosen(counts, name, None, None, seed)
        p_value = sign_flip_test(_leads(counts, name, offset), seed=seed)[1]
        rows.append(row | {"count": counts.size(name), "p_best": p_value})
    known = paper.reindex(names.get(row["relation"]) for row in rows)
    columns = {f"paper_{own}": known[own].to_list() for own in ("head", "accuracy", "baseline")}
    return pd.DataFrame(rows).assign(**columns).reindex(columns=COLUMNS)


def held_out_heads(counts: HeadCounts, *, minimum: int = 100, seed: int = 0) -> pd.DataFrame:
    """Return what single heads are worth: head, direction and offset chosen on train, for dev.

    One row per relation with at least ``minimum`` words in train and any in dev, in percent and
    points.  ``margin`` is the head less the offset on the same words of dev, with a 95% interval
    over articles; ``p_holm`` says that it is above zero, adjusted for the number of relations.
    InputError where the corpus has no train or no dev split.
    """
    for split in ("train", "dev"):
        if split not in counts.splits:
            raise InputError(
                f"no {split} sentences; heads are chosen on train and scored on dev, so give a "
                "treebank with both (TRAIN,DEV), more sentences, or more tokens for long ones"
            )
    rows = []
    for name in _held_out(counts, minimum):
        choice, offset, row = _chosen(counts, name, "train", "dev", seed)
        lead = _leads(counts, name, offset, "dev")[(slice(None), *choice)]
        total = counts.by_article(counts.total, name, "dev")
        row |= ratio(100 * lead, total, seed=seed).columns("margin")
        for split in ("train", "dev"):
            row[f"{split}_count"] = counts.size(name, split)
            row[f"{split}_accuracy"] = counts.accuracy(name, split)[choice]
        rows.append(row | {"p_holm": sign_flip_test(lead, seed=seed)[1]})
    return pd.DataFrame(rows, columns=HELD_OUT_COLUMNS).assign(
        p_holm=lambda own: holm(own["p_holm"])
    )


def each_head(counts: HeadCounts, *, minimum: int = 100, seed: int = 0) -> pd.DataFrame:
    """Return what every head does best: relation and direction chosen on train, scored on dev.

    The relation is the one of `held_out_heads` whose best fixed offset the head outdoes by most
    points on train; ``margin`` is that lead on dev, with its 95% interval over articles.  Layer and
    head alone where no relation is frequent enough.
    """
    names = [name for name in _held_out(counts, minimum) if name != ALL]
    layers, heads = counts.right.shape[2:]
    if not names:
        return head_rows(layers, heads)
    by_offset = {name: counts.accuracy(name, "train", offsets=True) for name in names}
    leads = np.stack([counts.accuracy(name, "train") - by_offset[name].max() for name in names])
    best = leads.reshape(-1, layers, heads).argmax(axis=0)  # [relation x direction, layer, head]
    relation, direction = np.divmod(best, len(DIRECTIONS))
    table = head_rows(
        layers, heads, relation=np.array(names)[relation], direction=np.array(DIRECTIONS)[direction]
    )
    for index, name in enumerate(names):
        own = np.flatnonzero(relation.ravel() == index)
        chosen = direction.ravel()[own], *np.divmod(own, heads)
        lead = _leads(counts, name, int(by_offset[name].argmax()), "dev")[(slice(None), *chosen)]
        total = counts.by_article(counts.total, name, "dev")
        table.loc[own, "accuracy"] = counts.accuracy(name, "dev")[chosen]
        table.loc[own, "margin"] = 100 * lead.sum(axis=0) / total.sum()
        totals = np.broadcast_to(total[:, None], lead.shape)
        bounds = bootstrap_intervals(100 * lead, totals, seed=seed)
        table.loc[own, ["ci_low", "ci_high"]] = np.transpose(bounds)
    return table


def no_op_table(examples: Iterable[Example], held_out: pd.DataFrame) -> pd.DataFrame:
    """Return what a relation's head does where none of its relations is there (section 3.2).

    One row for each of `held_out_heads`' heads, "All" left out: the shares of attention that
    special tokens get from the words of dev that its relation is read from (``with``, ``count``)
    and from those that none of the head's relations is (``without``), and their ``difference``,
    each with its 95% interval over articles.  No row without special tokens.
    """
    rows = held_out.loc[held_out["relation"] != ALL, OF_HEAD]
    names, heads = rows[["relation", "head"]].to_numpy().T
    layer, head = np.array([parse_head(own) for own in heads], int).reshape(-1, 2).T
    reverse, of_one_head = (rows["direction"] == DIRECTIONS[1]).to_numpy(), heads[:, None] == heads
    parts, articles = [], []
    for example in (own for own in examples if own.record.get("split") == "dev"):
        given = word_maps(example)[1][layer, head].T  # [word, row]
        gold = np.asarray(example.record["heads"]) - 1
        dependents = np.asarray(example.record["relations"], object)[:, None] == names
        governors = np.zeros_like(dependents)
        np.logical_or.at(governors, gold[gold >= 0], dependents[gold >= 0])
        asked = np.where(reverse, governors, dependents)  # [word, row]
        idle = ~(asked @ of_one_head)
        parts.append([part.sum(axis=0) for part in (given * asked, asked, given * idle, idle)])
        articles.append(cluster_of(example.record, example.index))
    owner, known = pd.factorize(np.array(articles))
    sums = cluster_sums(np.array(parts), owner, np.arange(len(known)))  # [article, part, row]
    found = []
    for number, row in enumerate(rows.to_dict("records") if sums[:, ::2].any() else ()):
        own, others = sums[:, :2, number].T, sums[:, 2:, number].T
        with_it, without, bounds = ratio(*own), ratio(*others), paired_interval(others, own)
        lead = Estimate(without.value - with_it.value, *(float(bound[0]) for bound in bounds))
        row |= {"count": int(own[1].sum())} | with_it.columns("with") | without.columns("without")
        found.append(row | lead.columns("difference"))
    return pd.DataFrame(found or rows.iloc[:0])


def possessives(examples: Iterable[Example], held_out: pd.DataFrame) -> pd.DataFrame:
    """Return from which word the head of possessives finds what is possessed (section 4.2).

    One row, over dev's possessors with an 's: relation, head, direction, count; how often (%) it is
    right from the 's (``mark``) and from the ``possessor``, the ``difference``, and intervals.
    """
    chosen = held_out[held_out["relation"].isin(POSSESSIVE_RELATIONS)].head(1)
    found = []
    for example in examples if len(chosen) else ():
        maps = example.attention[parse_head(chosen["head"].item())].astype(np.float32)
        weights = maps[example.word_positions, example.word_positions]
        for question in questions(example.record) if example.record.get("split") == "dev" else ():
            if question.relation == chosen["relation"].item() and question.mark is not None:
                both = question, question._replace(mark=None)
                right = [answer(own, weights, chosen["direction"].item())[1] for own in both]
                found.append((cluster_of(example.record, example.index), *map(int, right)))
    table = pd.DataFrame(found, columns=["article", "mark", "possessor"])
    table = table.assign(difference=table["mark"] - table["possessor"]).groupby("article")
    row = chosen[OF_HEAD].assign(count=len(found))
    for name in ("mark", "possessor", "difference"):
        row = row.assign(**ratio(100 * table[name].sum(), table.size()).columns(name))
    return row[row["count"] > 0]


def with_special_tokens(examples: Iterable[Example], table: pd.DataFrame) -> pd.DataFrame:
    """Return Table 1's accuracies where special tokens may be picked, too (footnote 2).

    ``table`` is what `dependency_heads` returns, "All" left out.  Columns: relation, head,
    direction, accuracy (as there), with_special, both in percent, and change in points.
    """
    rows = table[table["relation"] != ALL]
    heads = {row.relation: (parse_head(row.head), row.direction) for row in rows.itertuples()}
    right = dict.fromkeys(heads, 0)
    for example in examples:
        offset = example.offset
        for question in questions(example.record):
            if question.relation in heads:
                head, direction = heads[question.relation]
                asked = question.asked if question.mark is None else question.mark
                gold = tuple(word + offset for word in question.gold)
                shifted = Question(question.relation, asked + offset, gold)
                weights = example.attention[head].astype(np.float32)
                right[question.relation] += int(answer(shifted, weights, direction)[1])
    found = rows[["relation", "head", "direction", "accuracy"]].reset_index(drop=True)
    found["with_special"] = 100 * rows["relation"].map(right).to_numpy() / rows["count"].to_numpy()
    return found.assign(change=found["with_special"] - found["accuracy"])


def split_words(
    records: Iterable[Record], word_ids: Callable[[list[str]], list[int | None]]
) -> pd.DataFrame:
    """Return how many words have how many tokens (section 4.1): tokens, words, share of them.

    ``word_ids`` gives the word of each token of some words, None for a special token.
    """
    lengths = Counter[int]()
    for record in records:
        counts = Counter(word for word in word_ids(record["words"]) if word is not None)
        lengths.update(counts.values())
    table = pd.DataFrame(sorted(lengths.items()), columns=["tokens", "words"])
    return table.assign(share=table["words"] / table["words"].sum())


def beside_paper(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of Table 1 that the paper has too: its head and figures, and those here.

    ``fit`` says how well the corpus's relation corresponds to the paper's ("exact", "close",
    "rough"); ``note`` where the paper's figure is in doubt.
    """
    known = relation_table()
    fits = known[known["scheme"] == scheme_of(table["relation"])].set_index("relation")["fit"]
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


def _held_out(counts: HeadCounts, minimum: int) -> list[str]:
    """Return the relations that are frequent enough in train and occur in dev."""
    return [name for name in counts.frequent(minimum, "train") if counts.size(name, "dev")]


def _chosen(
    counts: HeadCounts, relation: str, chosen_on: str | None, split: str | None, seed: int
) -> tuple[tuple[int, int, int], int, dict[str, object]]:
    """Return the best (direction, layer, head) and offset of a split, and their row on another."""
    accuracy = counts.accuracy(relation, chosen_on)  # [direction, layer, head]
    direction, layer, head = map(int, np.unravel_index(accuracy.argmax(), accuracy.shape))
    offset = int(counts.accuracy(relation, chosen_on, offsets=True).argmax())
    right = counts.by_article(counts.right[:, direction, layer, head], relation, split)
    total = counts.by_article(counts.total, relation, split)
    row = {
        "relation": relation,
        "head": head_label(layer, head),
        "direction": DIRECTIONS[direction],
        **ratio(100 * right, total, seed=seed).columns("accuracy", "ci"),
        "baseline": counts.accuracy(relation, split, offsets=True)[offset],
        "baseline_offset": OFFSETS[offset],
    }
    return (direction, layer, head), offset, row


def _leads(
    counts: HeadCounts, relation: str, offset: int, split: str | None = None
) -> Int[np.ndarray, "article direction layer head"]:
    """Return how many more words of each article every head gets right than a fixed offset."""
    by_offset = counts.by_article(counts.offset_right[:, offset], relation, split)
    return counts.by_article(counts.right, relation, split) - by_offset[:, None, None, None]


def silver_quality(treebank: Iterable[Sentence], *, minimum: int = 1) -> pd.DataFrame | None:
    """Compare spaCy's parses with the dev trees of a treebank; None if those are not UD's."""
    gold = [sentence for sentence in treebank if sentence.split == "dev"]
    if scheme_of({name for tree in gold for name in tree.relations}) != "ud":
        return None
    return attachment_agreement(gold, parse_words([tree.words for tree in gold]), minimum=minimum)


def attachment_agreement(
    gold: Sequence[Sentence], silver: Sequence[Sentence], *, minimum: int = 1
) -> pd.DataFrame:
    """Compare the heads of a CLEAR parse (spaCy) with those of a Universal Dependencies tree.

    The schemes disagree about what a head is.  A word is *comparable* where both would give it the
    same: its relation is marked "same" in `relation_table`, and neither it nor its gold head has a
    copula, whose place at the top of the clause may move the arc.

    One row for "All" words, one for those of "same conventions", then one per gold relation with
    at least ``minimum`` words, most frequent first.  ``attachment`` is unlabelled, ``inverted``
    where the gold head is attached to the word, both in percent; ``silver_relation`` is what the
    parse calls them most often.
    """
    same = set(relation_table().query("scheme == 'ud' and attachment == 'same'")["relation"])
    rows = []
    for tree, parse in zip(gold, silver, strict=True):
        arcs = list(zip(tree.heads, tree.relations, strict=True))
        has_copula = {head for head, name in arcs if name == "cop"}
        for word, (head, name) in enumerate(arcs, start=1):
            comparable = name in same and not {word, head} & has_copula
            agrees = parse.heads[word - 1] == head
            inverted = head > 0 and parse.heads[head - 1] == word
            rows.append((name, comparable, agrees, inverted, parse.relations[word - 1]))
    columns = ["relation", "comparable", "agrees", "inverted", "silver_relation"]
    words = pd.DataFrame(rows, columns=columns)
    groups = {ALL: words, "same conventions": words[words["comparable"]]}
    for name, size in Counter(words["relation"]).most_common():
        if size >= minimum:
            groups[name] = words[words["relation"] == name]
    return pd.DataFrame(
        {
            "relation": name,
            "count": len(own),
            "comparable": own["comparable"].sum(),
            "attachment": 100 * own["agrees"].mean(),
            "attachment_comparable": 100 * own["agrees"][own["comparable"]].mean(),
            "inverted": 100 * own["inverted"].mean(),
            "silver_relation": next(iter(dict(Counter(own["silver_relation"]).most_common(1))), ""),
        }
        for name, own in groups.items()
    )
