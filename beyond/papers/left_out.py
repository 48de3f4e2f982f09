"""Parts that later notebooks leave out for a model; each says so in its first output."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from beyond.long_texts import check_blocks
from beyond.papers.common.edge_cuts import key_token_ids
from beyond.papers.sinks.causes import check_layers
from helpers.errors import InputError, ModelError
from helpers.model.checkpoint import as_model_error
from helpers.model.forward import check_lens, padded
from helpers.model.loading import Model
from helpers.model.sites import check_removable, check_softmax, sites

# What notebook 10 changes, by names of `CHECKS`.
SINKS = ("edges cut", "one value of one token changed", "texts of up to 4,096 tokens")


def left_out(encoder: Model, *measures: str) -> dict[str, str]:
    """Find out which measures a model does not support, and why.

    Parameters
    ----------
    encoder : Model
        The model.
    *measures : str
        Names of `CHECKS`.

    Returns
    -------
    dict of str to str
        The reason of each measure that is left out; empty for most models.
    """
    reasons = {}
    for measure in measures:
        try:
            with as_model_error(encoder.name):
                CHECKS[measure](encoder)
        except InputError as error:
            reasons[measure] = str(error)
    return reasons


def print_left_out(encoder: Model, *measures: str) -> None:
    """Print a line for each measure that a notebook leaves out for a model, with the reason."""
    for measure, reason in left_out(encoder, *measures).items():
        print(f"left out: {measure}, because {reason}")


def require(encoder: Model, measure: str) -> None:
    """Raise ModelError if a model does not support the measure of a whole notebook."""
    for reason in left_out(encoder, measure).values():
        raise ModelError(f"{reason} Or leave this notebook out with --only.")


@contextmanager
def skip_if_unsupported() -> Iterator[None]:
    """Print one line instead of an error if the model or the text does not support a cell.

    An InputError or a ModelError inside the context is printed as "Left out: ...", and the
    notebook goes on after the cell.  Errors about damaged files are still raised.

    Yields
    ------
    None
        Use it in a ``with`` statement.
    """
    try:
        yield
    except InputError as error:
        if type(error) not in (InputError, ModelError):
            raise
        print(f"Left out: {error}")


def _check_edges(encoder: Model) -> None:
    key_token_ids(encoder)
    inputs = padded(encoder, [dict(encoder.tokenizer("a b c"))])
    check_softmax(encoder.model.base_model, inputs, encoder.layers)


def _check_word_predictions(encoder: Model) -> None:
    if encoder.objective not in ("masked-lm", "next-token"):
        raise ModelError("the model has no head that predicts words")


CHECKS = {
    "removal of heads": lambda encoder: check_removable(encoder.model, encoder.heads),
    "argument cues": lambda encoder: sites(encoder.model),
    "norms of what heads move": check_lens,
    "edges cut": _check_edges,
    "agreement of verbs": _check_word_predictions,
    "one value of one token changed": check_layers,
    "texts of up to 4,096 tokens": check_blocks,
}
