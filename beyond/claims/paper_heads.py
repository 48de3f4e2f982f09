"""The heads that the paper names in Tables 1 and 2, scored in a run of the paper's own model."""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Float

from helpers.data.links import COREFERENCE
from helpers.metrics.coreference import MENTION_TYPES, antecedents
from helpers.metrics.head_counts import OFFSETS, HeadCounts, head_counts
from helpers.metrics.heads import head_label, parse_head
from helpers.metrics.reference import paper_names, paper_table1, printed_numbers, scheme_of
from helpers.study import Study

COLUMNS = (
    "relation", "count", "paper_head", "accuracy", "rank", "best_head", "best_accuracy",
    "paper_offset", "offset_accuracy", "best_offset",
)  # fmt: skip


def paper_heads(counts: HeadCounts, mentions: HeadCounts) -> pd.DataFrame:
    """Score the heads of the paper's Tables 1 and 2, and rank them among all heads.

    Parameters
    ----------
    counts : HeadCounts
        What `helpers.metrics.head_counts.count_heads` returns, for a model with the paper's 12
        layers of 12 heads.
    mentions : HeadCounts
        What `helpers.metrics.coreference.count_antecedents` returns among mentions.

    Returns
    -------
    DataFrame
        A row for each relation of Table 1 that the treebank has, and for each type of mention of
        Table 2.  Columns:

        - ``relation``: the paper's name, or "coreference" and a type; ``count``: words or mentions;
        - ``accuracy`` (percent) of the paper's head in its better direction, and its ``rank`` among
          all heads in both directions;
        - ``best_head`` and ``best_accuracy``;
        - ``offset_accuracy`` of the paper's fixed offset, and ``best_offset``.
    """
    coreference_head = printed_numbers()["figure5"]["coreference"]
    names = paper_names(counts.frequent(1))
    rows = []
    for corpus_relation, relation in names.items():
        if relation in paper_table1().index:
            rows.append(_relation_row(counts, corpus_relation, relation))
    for mention_type in ("all", *MENTION_TYPES):
        n_mentions = mentions.size(mention_type)
        if n_mentions:
            comparison = _compare_heads(mentions.accuracy(mention_type), coreference_head)
            name = f"{COREFERENCE}, {mention_type}"
            rows.append({"relation": name, "count": n_mentions, **comparison})
    # Several relations of a corpus can have one name: the most frequent one comes first.
    return pd.DataFrame(rows, columns=COLUMNS).drop_duplicates("relation", ignore_index=True)


def _relation_row(counts: HeadCounts, corpus_relation: str, relation: str) -> dict[str, object]:
    """Score the paper's head and fixed offset on a relation of the treebank."""
    published = paper_table1().loc[relation]
    offset_accuracy = counts.rival_accuracy(corpus_relation)[0, 0]  # of full attention
    is_paper_offset = published["baseline_offset"] == OFFSETS
    return {
        "relation": relation,
        "count": counts.size(corpus_relation),
        **_compare_heads(counts.accuracy(corpus_relation), published["head"]),
        "paper_offset": published["baseline_offset"],
        "offset_accuracy": offset_accuracy[is_paper_offset][0],
        "best_offset": OFFSETS[offset_accuracy.argmax()],
    }


def _compare_heads(
    accuracy: Float[np.ndarray, "direction layer head"], paper_head: str
) -> dict[str, object]:
    """Compare the paper's head with all heads, each in both directions."""
    in_paper = accuracy[:, *parse_head(paper_head)].max()
    _, layer, head = np.unravel_index(accuracy.argmax(), accuracy.shape)
    return {
        "paper_head": paper_head,
        "accuracy": in_paper,
        "rank": (accuracy > in_paper).sum() + 1,
        "best_head": head_label(layer, head),
        "best_accuracy": accuracy.max(),
    }


def score_paper_heads(study: Study) -> pd.DataFrame:
    """Score the heads of the paper's Tables 1 and 2 in a run of the paper's own model.

    Returns
    -------
    DataFrame
        As `paper_heads`; ``used_instead`` names the corpus of the row, unless it has the annotation
        of the paper's.
    """
    counts = head_counts(study.treebank_store())
    table = paper_heads(counts, antecedents(study.coreference_store())["mentions"])
    treebank = "" if scheme_of(counts.names) == "stanford" else study.treebank_corpus().name
    documents = study.coreference_corpus()
    is_conll = all(name.endswith("_conll") for name in documents.spec["files"])
    is_coreference = table["relation"].str.startswith(COREFERENCE)
    return table.assign(
        used_instead=np.where(is_coreference, "" if is_conll else documents.name, treebank)
    )
