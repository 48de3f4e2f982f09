"""Find out before a run what can be measured of a model; ``run --dry-run`` prints the table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import pandas as pd

from beyond.long_texts import check_blocks
from beyond.papers.common.edge_cuts import key_token_ids
from beyond.papers.sinks.sinks import layer_modules
from helpers.errors import InputError, ModelError
from helpers.model.encoder import Encoder, as_model_error
from helpers.model.forward import check_lens, padded
from helpers.model.sites import check_removable, check_softmax, sites
from helpers.model.weights import check_reinitialised
from helpers.study import Study

LENS = "--lens norm"
LONG_TEXTS = "sinks in texts of up to 4,096 tokens"
OBJECTIVES = {
    "masked-lm": "its own masked-LM loss",
    "next-token": "its own next-token loss",
    "contrastive": "the contrastive loss of sentence encoders: it has no language model's head",
}


def supports(encoder: Encoder) -> pd.DataFrame:
    """Find out what can be measured of a model, section by section.

    Parameters
    ----------
    encoder : Encoder
        The model.

    Returns
    -------
    DataFrame
        One row per measure.  Columns: ``notebooks``, their numbers, or the flag of a run; ``what``;
        ``supported``; ``why_not``, the reason, empty if it is supported.
    """
    rows = [
        ("00 to 06", "attention maps", _always),
        ("02", f"gradients of {OBJECTIVES[encoder.objective]}", _always),
        (LENS, "maps of what attention moves", check_lens),
        ("00 to 06", "control: random weights", _check_random),
        ("00 to 06", "control: random weights, entropy-matched", _check_weights_of_heads),
        ("07", "fine-tuning and disabled heads", _check_weights_of_heads),
        ("08", "removal of heads", check_removal),
        ("09", "argument cues", check_sites),
        ("10", "norms of what heads move", check_lens),
        ("10", "edges to special tokens cut", _check_edges),
        ("11", "agreement of verbs", _check_word_predictions),
        ("12", "one value of one token changed", _check_layers),
        ("12", LONG_TEXTS, check_blocks),
    ]
    table = []
    for notebooks, measurement, check in rows:
        reason = _reason(check, encoder)
        table.append((notebooks, measurement, not reason, reason))
    return pd.DataFrame(table, columns=["notebooks", "what", "supported", "why_not"])


def describe_support(encoder: Encoder) -> Iterator[str]:
    """Yield the lines of the table `supports` as a dry run prints them."""
    yield "what this model supports:"
    for row in supports(encoder).itertuples():
        answer = "yes" if row.supported else f"no: {row.why_not}"
        yield f"  {row.notebooks:<12} {row.what}: {answer}"


def check_supported(study: Study, notebooks: Collection[str]) -> None:
    """Check before a run that the model supports its notebooks.

    Parameters
    ----------
    study : Study
        The study, whose model is loaded if a notebook of `WHOLE` needs it.
    notebooks : collection of str
        The numbers of the notebooks of the run.

    Raises
    ------
    ModelError
        If the model does not support a notebook of `WHOLE`.
    """
    for notebook in sorted(WHOLE.keys() & notebooks):
        reason = _reason(WHOLE[notebook], study.encoder)
        if reason:
            raise ModelError(f"notebook {notebook}: {reason} Or leave it out with --only.")


def check_removal(encoder: Encoder) -> None:
    """Raise ModelError if the outputs of a model's heads cannot be removed."""
    check_removable(encoder.model, encoder.heads)


def check_sites(encoder: Encoder) -> None:
    """Raise ModelError if the attention of a model's layers cannot be located."""
    sites(encoder.model)


def _reason(check: Callable[[Encoder], None], encoder: Encoder) -> str:
    """Return the reason why a check fails; empty if it does not."""
    try:
        with as_model_error(encoder.name):
            check(encoder)
    except InputError as error:
        return str(error)
    return ""


def _always(encoder: Encoder) -> None:
    """Every model that is loaded has passed."""


def _check_random(encoder: Encoder) -> None:
    check_reinitialised(encoder.model)


def _check_weights_of_heads(encoder: Encoder) -> None:
    inputs = padded(encoder, [dict(encoder.tokenizer("a b c"))])
    check_softmax(encoder.model.base_model, inputs, encoder.layers)


def _check_edges(encoder: Encoder) -> None:
    key_token_ids(encoder)
    _check_weights_of_heads(encoder)


def _check_word_predictions(encoder: Encoder) -> None:
    if encoder.objective not in ("masked-lm", "next-token"):
        raise ModelError(
            "it has no head that predicts words, so it gives no probability of a verb."
        )


def _check_layers(encoder: Encoder) -> None:
    if len(layer_modules(encoder.model.base_model)) != encoder.layers:
        raise ModelError("one module is all its layers, so no vector changes before one of them.")


# The notebooks that a model supports as a whole, or not at all; 10 to 12 leave parts out.
WHOLE = {"08": check_removal, "09": check_sites}
