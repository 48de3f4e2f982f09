"""A checkpoint's own classifier of texts, whose loss can be the objective of section 3.2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from transformers import AutoModelForSequenceClassification

from helpers.data.labelled import LabelledText
from helpers.data.records import Record
from helpers.data.text_files import quoted
from helpers.errors import CorpusError, ModelError
from helpers.model.encoder import Encoder, as_model_error, model_folder
from helpers.model.forward import text_inputs
from helpers.model.sites import base_transformer, set_temperatures
from helpers.model.weights import from_pretrained, reinitialised


def classifier_labels(encoder: Encoder) -> list[str]:
    """List the labels of a checkpoint that is an encoder with a classifier of texts.

    There are none if a text gets a score, or several labels.
    """
    if not encoder.architecture.endswith("ForSequenceClassification"):
        return []
    config = cast("Any", encoder.model.config)  # its types allow for None
    is_decoder = config.is_encoder_decoder or encoder.special_tokens["cls"] is None
    has_classes = config.problem_type in (None, "single_label_classification")
    if is_decoder or config.num_labels == 1 or not has_classes:
        return []
    return [config.id2label[number] for number in range(config.num_labels)]


def with_classifier(encoder: Encoder) -> Encoder:
    """Put the checkpoint's classifier of texts on the model: its loss becomes the objective.

    The classifier of a control is re-initialised, like the other weights.

    Raises
    ------
    ModelError
        If the checkpoint lacks weights of the classifier.
    """
    folder = model_folder(encoder.name, encoder.identity.get("revision"))
    seed = encoder.identity["random_init"]
    with as_model_error(encoder.name):
        model, report = from_pretrained(AutoModelForSequenceClassification, folder, encoder.dtype)
        missing_keys = [*report["missing_keys"], *report["mismatched_keys"]]
        if missing_keys:
            raise ModelError(
                f"model {encoder.name!r}: its classifier has no weights for {missing_keys[0]}. Use "
                "a complete checkpoint, or leave --task out."
            )
        if seed is not None:
            model = reinitialised(model, seed=seed)
    model.base_model.load_state_dict(encoder.model.base_model.state_dict(), strict=False)
    if "temperatures" in encoder.identity:
        set_temperatures(base_transformer(model), encoder.identity["temperatures"])
    # The types of transformers leave the model out of the arguments of ``to``.
    model = model.to(encoder.model.device).eval().requires_grad_(False)  # pyright: ignore[reportArgumentType]
    return replace(encoder.with_model(model), objective="classification")


def labelled_records(
    encoder: Encoder, path: Path, texts: Sequence[LabelledText], *, max_tokens: int
) -> list[Record]:
    """Convert labelled texts to records for the objective of the checkpoint's classifier.

    Parameters
    ----------
    encoder : Encoder
        The model.
    path : Path
        The file of the texts.
    texts : sequence of LabelledText
        A label is the name of one of the model's, in upper or lower case, or its number from 0.
    max_tokens : int
        The longest input; longer texts are cut.

    Returns
    -------
    list of dict
        ``inputs``, and ``label``, a number.

    Raises
    ------
    CorpusError
        If the model does not have a label; the message names the line.
    """
    labels = classifier_labels(encoder)
    label_numbers = {str(number): number for number in range(len(labels))}
    label_numbers |= {label.lower(): number for number, label in enumerate(labels)}
    all_inputs = text_inputs(encoder, [text.texts for text in texts], max_tokens)
    records = []
    for (line, _, label), inputs in zip(texts, all_inputs, strict=True):
        if label.lower() not in label_numbers:
            raise CorpusError(
                path,
                f"the label {quoted(label)} is none of the model's: {', '.join(labels)}, or their "
                "numbers from 0. Use a file of its task.",
                line,
            )
        records.append({"inputs": inputs, "label": label_numbers[label.lower()]})
    return records
