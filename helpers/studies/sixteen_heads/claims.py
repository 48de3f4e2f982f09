"""The claims of *Are Sixteen Heads Really Better than One?* (Michel, Levy and Neubig, 2019)."""

from __future__ import annotations

from functools import partial

import pandas as pd

from helpers.analysis.paper import Claim, Measure, Tables, chosen_rows, read_claims, rows_of
from helpers.analysis.statistics import Estimate, share_of
from helpers.studies.sixteen_heads.summaries import ALL, HALVES, OTHER_CORPUS, REST
from helpers.studies.tasks import learned_rows, smallest_share, worst

NOTICEABLE = 0.05  # a loss that is significant at this level is noticed
DEEP = 60  # percent of the heads: where cross-attention breaks in the paper


def pruning_claims() -> list[Claim]:
    """Return the claims about removing heads."""
    return read_claims(__file__, MEASURES)


def layers_with_one_head(tables: Tables) -> Estimate:
    """Return the share of layers whose heads but one are removable."""
    removable = _needing(tables, "one_head", "removable")["removable"]
    return share_of(removable.sum(), len(removable))


def cross_less_self(tables: Tables) -> float:
    """Return the BLEU left with few heads of cross-attention, less that with few of others."""
    table = rows_of(tables, "translation_pruning", "kind", "kept", "bleu")
    deep = table[table["kept"] <= 1 - DEEP / 100 + 1e-9].groupby("kind")["bleu"].mean()
    return float(deep["cross"] - min(deep["encoder"], deep["decoder"]))


def _needing(tables: Tables, table: str, *columns: str) -> pd.DataFrame:
    """Return the rows of the tasks that are learned, and of which no head at all is worse."""
    pruning = rows_of(tables, "pruning", "task", "pruned", "change", "p_value")
    lost = (pruning["change"] < 0) & (pruning["p_value"] < NOTICEABLE)
    tasks = set(pruning.loc[lost & (pruning["pruned"] == 100), "task"])
    rows = _learned(tables, table, *columns)
    return chosen_rows(rows, rows["task"].isin(tasks), "a task that the model needs its heads for")


def _learned(tables: Tables, table: str, *columns: str) -> pd.DataFrame:
    """Return the rows of the tasks that are learned; of all where 07, which says so, is not run."""
    rows = learned_rows if "fine_tuning" in tables else rows_of
    return rows(tables, table, "task", *columns)


_correlated = partial(worst, table="cross_data", of=_learned)
_transfer = partial(_correlated, column="correlation", interval="correlation")
_ranks = partial(_correlated, column="rank_correlation", interval="rank_correlation")
_pruned = partial(worst, table="seed_intervals", column="change", of=_needing)
_lead = partial(worst, table="pruning", column="lead", interval="lead", of=_needing)
MEASURES: dict[str, Measure] = {
    "removable alone": partial(smallest_share, table="ablation", column="removable", of=_needing),
    "layers with one head": layers_with_one_head,
    "transfer": partial(_transfer, set=HALVES, heads=ALL),
    "transfer of the rest": partial(_transfer, set=HALVES, heads=REST),
    "transfer of ranks": partial(_ranks, set=HALVES, heads=ALL),
    "other corpus": partial(_transfer, set=OTHER_CORPUS, heads=ALL),
    "prunable": partial(_pruned, pruned=20),
    "prunable as there": partial(_pruned, pruned=40),
    "over single ablation": partial(_lead, order="single ablation"),
    "over random order": partial(_lead, order="random"),
    "cross-attention": cross_less_self,
}
