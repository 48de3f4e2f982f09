"""Sentences that a reader of a run has to know: on its model, its weights and its text."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from helpers.data.preview import note_text
from helpers.data.text_files import existing_file
from helpers.data.wikipedia import articles
from helpers.errors import ModelError

if TYPE_CHECKING:
    from helpers.model.loading import Model
    from helpers.settings import Settings
    from helpers.store.store import Store

DECODER = "The model is a decoder: under its causal mask a token sees itself and earlier tokens."
NO_BEGINNING = (
    "Its texts begin without a special token. The first word of a sentence therefore takes "
    "the attention that has no better use, and it stays a candidate in section 4."
)
# Of built-in models whose weights are not those that were trained; shown with every result.
WEIGHTS_NOTES = {"smollm2": "4-bit weights, dequantised"}


def run_notes(encoder: Model, settings: Settings) -> list[str]:
    """Collect the notes on the model and the text of a run.

    Parameters
    ----------
    encoder : Model
        The model.
    settings : Settings
        The settings of the run.

    Returns
    -------
    list of str
        One sentence or a few in each.
    """
    notes = [objective_note(encoder), decoder_note(encoder), *heads_notes(encoder)]
    notes.append(cut_note(encoder, settings.max_tokens))
    if settings.model in WEIGHTS_NOTES:
        notes.append(f"The model {settings.model} has {WEIGHTS_NOTES[settings.model]}.")
    if settings.text:
        notes += note_text(articles(existing_file(settings.text)))
    return list(filter(None, notes))


def decoder_note(model: Model | Store) -> str:
    """Describe the mask of a decoder and the beginning of its texts; empty for other models."""
    if not model.is_decoder:
        return ""
    roles = model.special_tokens
    beginning = roles["cls"] or roles.get("first")
    return f"{DECODER} {f'Each text begins with {beginning}.' if beginning else NO_BEGINNING}"


def heads_notes(encoder: Model) -> list[str]:
    """Describe the measured layers of a hybrid, and heads that do more than their maps show."""
    from helpers.model.forward import MixedHeadsError, check_lens  # torch
    from helpers.model.sites import base_transformer, is_hybrid

    notes = []
    if is_hybrid(encoder.model):
        n_layers = base_transformer(encoder.model).config.num_hidden_layers
        notes.append(
            f"Of the model's {n_layers} layers, {encoder.layers} have attention maps. Only these "
            "are measured, under their own numbers: "
            f"{', '.join(map(str, encoder.layer_numbers))}."
        )
    with suppress(ModelError):  # of a model whose value vectors cannot be found
        try:
            check_lens(encoder)
        except MixedHeadsError:
            notes.append(
                "The heads of this model do more than weigh value vectors by their attention, so "
                "its maps do not show all that a head does."
            )
    return notes


def objective_note(encoder: Model) -> str:
    """Give the reason for the contrastive loss, if the checkpoint has the head of another task.

    The text is empty for a language model, and for a model without a head.
    """
    # Sentence encoders may keep the name of the masked language model that they were before.
    has_other_head = re.search("For(?!MaskedLM)[A-Z]|Head", encoder.architecture)
    if encoder.objective != "contrastive" or not has_other_head:
        return ""
    return (
        f"The checkpoint is a {encoder.architecture}. Section 3.2 does not use the objective of "
        "its head, which needs labels or other inputs. It uses the contrastive loss between "
        "neighbouring paragraphs, with which the checkpoint was not trained."
    )


def cut_note(encoder: Model, max_tokens: int) -> str:
    """Say at which length texts are cut, if that is not the one of the settings."""
    from helpers.store.extract import longest_whole_maps  # torch

    longest = min(encoder.max_length, longest_whole_maps(encoder.layers, encoder.heads))
    if longest >= max_tokens:
        return ""
    return (
        f"Texts are cut at {longest:,} tokens, and not at {max_tokens:,}, because the model takes "
        "no longer ones, or their maps are too large to be kept."
    )
