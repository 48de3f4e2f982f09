"""The claims of Niven & Kao (2019): arguments have cues, and models follow nothing else.

They are about arguments that people wrote.  The embedded sample has its cue planted, and a model
that finds it confirms the plant and no claim: there they are not measured.
"""

from __future__ import annotations

import pandas as pd

from helpers.analysis.claims import Claim, Estimate, NotMeasurable, Tables, rows_of
from helpers.analysis.paper import values_of
from helpers.studies.argument_cues.arguments import EMBEDDED
from helpers.studies.argument_cues.cues import ALL, CHANCE, HALVES, NOT
from helpers.studies.argument_cues.scores import ORIGINAL, SWAPPED

PAPER = "Niven & Kao"
ENCODER, BAG, BILSTM = "encoder", "bag of vectors", "BiLSTM"
MODELS = (BAG, BILSTM, ENCODER)
WARRANTS, EVERYTHING = "warrants", "all"
MOSTLY = 0.5  # of the accuracy above chance
CLOSE = 5.0  # points
AS_WRITTEN, ADVERSARIAL, BOTH = HALVES


def cue_claims() -> list[Claim]:
    """Return the claims of sections 4, 5 and 6 of Niven & Kao."""
    paper = values_of("Niven")

    def published(model: str, inputs: str, statistic: str) -> float:
        return paper[f"{model}, {inputs}, original, {statistic}"]

    whole, part = (published(ENCODER, inputs, "median") for inputs in (EVERYTHING, WARRANTS))
    return [
        Claim(
            f"{PAPER} 4",
            "The warrant with “not” is more often right than the other",
            "productivity of “not” in percent; holds above 50",
            lambda t: _estimate(_cue(t), "productivity"),
            threshold=CHANCE,
            paper=paper["productivity of not, all"],
        ),
        Claim(
            f"{PAPER} 4",
            "“not” is the strongest of the words that are cues",
            "points of accuracy over guessing from following it, less those from the next best "
            "word; holds above 0",
            _lead_of_not,
            threshold=0.0,
        ),
        Claim(
            f"{PAPER} 5",
            "Warrants alone are enough for most of what the encoder achieves",
            "its median accuracy above chance with warrants alone, as a share of that with "
            f"everything; holds above {MOSTLY}",
            _share_of_warrants,
            threshold=MOSTLY,
            paper=(part - CHANCE) / (whole - CHANCE),
        ),
        Claim(
            f"{PAPER} 5",
            "All kinds of model get the right warrant from the warrants alone",
            "the lowest mean accuracy of bag of vectors, BiLSTM and encoder; holds above 50",
            lambda t: _estimate(min((_choice(t, m, WARRANTS) for m in MODELS), key=_mean)),
            threshold=CHANCE,
            paper=min(published(m, WARRANTS, "mean") for m in MODELS),
        ),
        Claim(
            f"{PAPER} 5",
            "The encoder follows the cues better than a bag of vectors",
            "points of median accuracy between the two with warrants alone; holds above 0, with "
            "the interval of the encoder",
            _encoder_less_bag,
            threshold=0.0,
            paper=part - published(BAG, WARRANTS, "median"),
        ),
        Claim(
            f"{PAPER} 6",
            "Models trained on arguments as written do worse than chance on the counterparts",
            "the highest mean accuracy of bag of vectors, BiLSTM and encoder with everything "
            "shown; holds below 50",
            lambda t: _estimate(
                max((_choice(t, m, EVERYTHING, test=ADVERSARIAL) for m in MODELS), key=_mean)
            ),
            threshold=CHANCE,
            below=True,
        ),
        Claim(
            f"{PAPER} 6",
            "Trained on swapped warrants too, the encoder is at chance on both halves",
            "points from 50 to its mean accuracy on both with everything shown, validated on both; "
            f"holds below {CLOSE:g}, our margin",
            _from_chance,
            threshold=CLOSE,
            paper=abs(paper[f"{ENCODER}, {EVERYTHING}, {BOTH}, mean"] - CHANCE),
            below=True,
        ),
    ]


def _cue(tables: Tables) -> pd.Series:
    """Return the row of ``not`` in the originals of all splits."""
    columns = ("half", "split", "cue", "productivity", "ci_low", "ci_high")
    return _one(_written(tables, "cues", *columns), half=AS_WRITTEN, split=ALL, cue=NOT)


def _lead_of_not(tables: Tables) -> float:
    table = _written(tables, "cues", "half", "split", "cue", "kind", "gain")
    own = table[(table["half"] == AS_WRITTEN) & (table["split"] == ALL)]
    others = own[(own["kind"] == "unigram") & (own["cue"] != NOT)]
    if others.empty:
        raise NotMeasurable("other cues")
    return _one(own, cue=NOT)["gain"] - others["gain"].max()


def _share_of_warrants(tables: Tables) -> float:
    everything = _choice(tables, ENCODER, EVERYTHING)["median"] - CHANCE
    if everything <= 0:
        raise NotMeasurable("an encoder above chance")
    return (_choice(tables, ENCODER, WARRANTS)["median"] - CHANCE) / everything


def _encoder_less_bag(tables: Tables) -> Estimate:
    encoder, bag = (_choice(tables, model, WARRANTS) for model in (ENCODER, BAG))
    return Estimate(*(encoder[["median", "ci_low", "ci_high"]] - bag["median"]))


def _choice(
    tables: Tables, model: str, inputs: str, *, train: str = ORIGINAL, test: str = AS_WRITTEN
) -> pd.Series:
    columns = ("model", "inputs", "train", "test", "mean", "median", "ci_low", "ci_high")
    table = _written(tables, "partial_inputs", *columns)
    return _one(table, model=model, inputs=inputs, train=train, test=test)


def _from_chance(tables: Tables) -> Estimate:
    """Return how far accuracy is from chance, on either side."""
    row = _choice(tables, ENCODER, EVERYTHING, train=SWAPPED, test=BOTH)
    low, high = row["ci_low"] - CHANCE, row["ci_high"] - CHANCE
    return Estimate(abs(row["mean"] - CHANCE), max(0, low, -high), max(-low, high))


def _written(tables: Tables, table: str, *columns: str) -> pd.DataFrame:
    """Return a table of a run on arguments that people wrote."""
    rows = rows_of(tables, table, "corpus", *columns)
    if (rows["corpus"] == EMBEDDED).any():
        raise NotMeasurable("the cue of the embedded sample is planted")
    return rows


def _one(table: pd.DataFrame, **values: str) -> pd.Series:
    chosen = table[(table[list(values)] == pd.Series(values)).all(axis=1)]
    if chosen.empty:
        raise NotMeasurable(", ".join(values.values()))
    return chosen.iloc[0]


def _estimate(row: pd.Series, name: str = "mean") -> Estimate:
    return Estimate(*row[[name, "ci_low", "ci_high"]])


def _mean(row: pd.Series) -> float:
    return row["mean"]
