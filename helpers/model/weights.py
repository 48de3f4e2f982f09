"""Read the weights of a checkpoint, and check that they fit its tokenizer and return maps.

All code comes from transformers, and none from a checkpoint.  Layer counts, head counts and what a
token sees are read off a pass of the model: configurations often name windows, and not always
truly.  They only say what a short input cannot show: a window that is longer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import transformers
from jaxtyping import Bool, Int
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForTextEncoding,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES,
)

from helpers.data.records import Visible, describe_mask
from helpers.errors import ModelError
from helpers.model.sites import (
    LOW_SCORE,
    PatchSoftmax,
    Scores,
    Weights,
    attending_layers,
    base_transformer,
    is_hybrid,
    show_attending_layers,
)
from helpers.model.tokenizer import begin_with_bos, read_tokenizer, tokenizer_properties

# Of a row's sum, and of maps with and without padding.
LONG_WINDOW = 1100  # in tokens; that of a layer with a longer one is taken as it is declared
PROBE_TOLERANCE = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}


def read_encoder(
    folder: Path, *, device: str, dtype: str, random_init: int | None
) -> dict[str, Any]:
    """Read the model and the tokenizer in a folder; see `helpers.model.loading.load_model`.

    Returns
    -------
    dict
        The attributes of `Model` but its name and key.
    """
    fastest = torch.accelerator.current_accelerator(check_available=True) or "cpu"
    target_device = torch.device(fastest if device == "auto" else device)
    transformers.logging.set_verbosity_error()  # it would report unused heads
    transformers.logging.disable_progress_bar()
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    model, objective = _read_model(folder, config, dtype)
    rows = cast("int", model.get_input_embeddings().num_embeddings)
    tokenizer = read_tokenizer(folder, config.model_type)
    entries = max(tokenizer.get_vocab().values()) + 1
    if entries > rows:
        problem = f"the tokenizer has {entries} entries but the weights have {rows} embeddings"
        raise ValueError(f"{problem}. Use a tokenizer and weights of the same model.")
    if objective == "masked-lm" and tokenizer.mask_token_id is None:
        model = base_transformer(model)
        objective = "contrastive"
    if random_init is not None:
        model = reinitialised(model, seed=random_init)
    # The types of transformers leave the model out of the arguments of ``to``.
    model = model.to(target_device).eval().requires_grad_(False)  # pyright: ignore[reportArgumentType]
    if is_hybrid(model):
        show_attending_layers(model)
    ids = tokenizer("a b c", return_tensors="pt")["input_ids"].to(target_device)
    heads, has_sink = probe_maps(model, ids, padding_id=cast("int", tokenizer.pad_token_id or 0))
    max_length = longest_input(model, tokenizer)
    visible = probe_visible(model, ids, max_length)
    if all(layer.causal for layer in visible):
        begin_with_bos(tokenizer)
    elif objective == "next-token":  # of a family that can be made to see later tokens
        model = base_transformer(model)
        objective = "contrastive"
    return {
        "model": model,
        "tokenizer": tokenizer,
        "objective": objective,
        "architecture": "".join((model.config.architectures or [])[:1]),
        "layer_numbers": attending_layers(model),
        "heads": heads,
        "visible": [layer._asdict() for layer in visible],
        "has_sink": has_sink,
        "max_length": max_length,
        **tokenizer_properties(model.config, tokenizer),
    }


def _read_model(folder: Path, config: PreTrainedConfig, dtype: str) -> tuple[PreTrainedModel, str]:
    """Read the part of a model that encodes text, with its language-modelling head if trained.

    Also returns the objective: that of the head, or without one that of sentence encoders.
    """
    auto_model, objective = _model_class(config)
    model, report = auto_model.from_pretrained(
        folder,
        dtype=getattr(torch, dtype),
        attn_implementation="eager",
        use_safetensors=True,
        trust_remote_code=False,
        ignore_mismatched_sizes=True,  # the report has them
        output_loading_info=True,
    )
    encoder = _text_encoder(model, config)
    _check_weights(model, encoder, report)
    if objective == "contrastive" or report["missing_keys"]:
        # transformers has initialised a head at random that was never trained: leave it off.
        return encoder, "contrastive"
    return model, objective


def _model_class(config: PreTrainedConfig) -> tuple[Any, str]:
    """Choose the class that reads a checkpoint, and the objective that its head was trained with.

    Without a head it is the objective of sentence encoders.
    """
    family = config.model_type
    architecture = "".join((config.architectures or [])[:1])
    is_decoder = getattr(config, "is_decoder", False)  # of families that can be either
    can_be_masked = family in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    is_causal = family in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and (is_decoder or not can_be_masked)
    if not config.is_encoder_decoder:
        if is_causal and re.search("CausalLM|LMHead", architecture):
            return AutoModelForCausalLM, "next-token"
        if can_be_masked:
            return AutoModelForMaskedLM, "masked-lm"
    if family in MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES:  # T5, whose checkpoints may have no decoder
        return AutoModelForTextEncoding, "contrastive"
    return AutoModel, "contrastive"


def _text_encoder(model: PreTrainedModel, config: PreTrainedConfig) -> PreTrainedModel:
    """Find the part of a model that encodes text: all but a decoder, heads, and other senses."""
    text_config = config.get_text_config()
    if text_config is not config:
        parts = [part for part in model.modules() if isinstance(part, PreTrainedModel)]
        return next(part for part in parts if type(part.config) is type(text_config))
    return model.get_encoder() if config.is_encoder_decoder else base_transformer(model)


def _check_weights(
    model: PreTrainedModel, encoder: PreTrainedModel, report: Mapping[str, Any]
) -> None:
    """Raise an error if weights of the encoder, a part of the model, are missing or do not fit."""
    if report["mismatched_keys"]:
        key, shape, expected_shape = min(report["mismatched_keys"])
        shapes = f"{list(shape)}, and in config.json {list(expected_shape)}"
        raise ValueError(f"the weights of {key} are {shapes}. Use those of the same model.")
    encoder_parameters = set(encoder.parameters())
    for key, weight in model.named_parameters():
        module = model.get_submodule(key.rpartition(".")[0])
        # Sentence encoders leave out the pooler, on which no map depends, and no checkpoint has
        # weights that are computed: the sinusoids of Marian.
        can_be_missing = "pooler." in key or "Sinusoidal" in type(module).__name__
        is_missing = key in report["missing_keys"] and weight in encoder_parameters
        if is_missing and not can_be_missing:
            raise ValueError(f"the checkpoint has no weights for {key}. Check that it is complete.")


def probe_maps(
    model: PreTrainedModel, ids: Int[Tensor, "1 token"], *, padding_id: int
) -> tuple[int, bool]:
    """Check the maps that a model returns for a short text, without and with padding.

    Parameters
    ----------
    model : PreTrainedModel
        The model.
    ids : tensor of shape (1, token)
        The token ids of any text.
    padding_id : int
        The token id of padding.

    Returns
    -------
    heads : int
        Number of heads in each layer.
    has_sink : bool
        Whether the softmax has a learned score besides those of the keys.

    Raises
    ------
    ValueError
        If there is not one full map for each head of the layers that attend, if a row is not a
        distribution, or if padding changes the maps.
    """
    n = ids.shape[1]
    maps, scores = computed_maps(model, ids)
    shapes = {layer.shape for layer in maps}
    if (
        not maps
        or len(maps) != len(attending_layers(model))
        or shapes != {(1, maps[0].shape[1], n, n)}
    ):
        raise ValueError(
            "it gives no (heads, tokens, tokens) map for each layer that attends. Use a model with "
            "full softmax attention in these layers, such as BERT."
        )
    alone = torch.stack(maps)  # [layer, 1, head, query, key]
    has_sink = n + 1 in {layer.shape[-1] for layer in scores}  # GPT-OSS
    sums = alone.sum(dim=-1, dtype=torch.float32)
    errors = sums - 1 if has_sink else (sums - 1).abs()
    if not (alone.min() >= 0 and errors.max() < PROBE_TOLERANCE[model.dtype]):  # NaN is neither
        raise ValueError(
            "what it returns are not attention weights: a row sums to "
            f"{sums.flatten()[errors.argmax()]:.3g}, and not to 1. Use a model that returns the "
            "weights after the softmax, such as BERT."
        )
    padded, _ = computed_maps(model, F.pad(ids, (0, n), value=padding_id), padding=n)
    if (alone - torch.stack(padded)[..., :n, :n]).abs().max() > PROBE_TOLERANCE[model.dtype]:
        raise ValueError(
            "its maps change with padding, so they would depend on the batch. Use a model that "
            "masks padding, such as BERT."
        )
    return maps[0].shape[1], has_sink


@torch.inference_mode()
def computed_maps(
    model: PreTrainedModel, ids: Int[Tensor, "1 token"], *, padding: int = 0
) -> tuple[list[Tensor], list[Tensor]]:
    """Compute the maps of the layers that return one, and the highest scores of their heads.

    The highest scores over heads, ``[query, key]``, are those of each call of softmax.  The last
    ``padding`` tokens are masked.
    """
    highest_scores: list[Tensor] = []

    def record(_layer: int, scores: Scores, softmax: Callable[[Any], Weights]) -> Weights:
        highest_scores.append(scores[0].amax(dim=0))
        return softmax(scores)

    mask = torch.ones_like(ids)
    mask[:, ids.shape[1] - padding :] = 0
    with PatchSoftmax(model, record):
        output = model(ids, attention_mask=mask, output_attentions=True)
    maps = [layer for layer in output.get("attentions") or () if layer is not None]
    return maps, highest_scores


def probe_visible(
    model: PreTrainedModel, ids: Int[Tensor, "1 token"], max_length: int
) -> list[Visible]:
    """Find which keys the queries of each layer can attend to.

    Parameters
    ----------
    model : PreTrainedModel
        The model.
    ids : tensor of shape (1, token)
        The token ids of any text.
    max_length : int
        The longest input that the model takes.

    Returns
    -------
    list of Visible
        One for each layer.

    Raises
    ------
    ValueError
        If a mask is neither full, nor causal, nor a window.
    """
    numbers = attending_layers(model)
    declared = [declared_window(model.config, number) for number in numbers]
    # The number of a causal window counts keys.  That of another is a distance in most families,
    # and a distance plus one in some, which an input that is longer than the window tells.
    windows = [window for window in declared if window and window < LONG_WINDOW]
    n = min(max([16, *windows]) + 2, max_length)
    layers = []
    masks = computed_masks(model, ids, n)
    for number, window, mask in zip(numbers, declared, masks, strict=True):
        visible = describe_mask(mask)
        if visible is None:
            raise ValueError(
                f"what a token sees in layer {number} is neither all tokens, nor the earlier ones, "
                "nor a window, so that no baseline is known. Use a model with one of these."
            )
        if window is not None and n <= window < max_length:
            visible = visible._replace(window=window - 1 if visible.causal else window)
        layers.append(visible)
    return layers


def declared_window(config: PreTrainedConfig, number: int) -> int | None:
    """Read the window of a layer, by its number, off the configuration; None if it names none."""
    window = getattr(config, "sliding_window", None)
    if not window or getattr(config, "use_sliding_window", True) is False:
        return None
    layer_types = getattr(config, "layer_types", None)
    return window if not layer_types or "sliding" in layer_types[number - 1] else None


def computed_masks(
    model: PreTrainedModel, ids: Int[Tensor, "1 token"], n: int
) -> list[Bool[np.ndarray, "query key"]]:
    """Read off a pass which keys each query sees, in each layer.

    A key is visible if it has a score before the softmax.  Where the scores cannot be read, a key
    is visible if any head gives it weight.

    Parameters
    ----------
    model : PreTrainedModel
        The model.
    ids : tensor of shape (1, token)
        The token ids of any text, which is repeated.
    n : int
        The number of tokens.

    Returns
    -------
    list of bool array, shape (query, key)
    """
    maps, scores = computed_maps(model, ids.repeat(1, -(-n // ids.shape[1]))[:, :n])
    if len(scores) != len(maps):
        return [(layer[0] > 0).any(dim=0).numpy(force=True) for layer in maps]
    masks = []
    for layer in scores:
        # A learned score in the softmax (GPT-OSS) is one more key.
        highest = layer[:, :n]
        mask = (highest > torch.finfo(layer.dtype).min / 2).numpy(force=True)
        is_not_low = (highest > LOW_SCORE).numpy(force=True)
        masks.append(is_not_low if mask.all() and describe_mask(is_not_low) else mask)
    return masks


def longest_input(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> int:
    """Find the number of tokens of the longest input that a model takes."""
    lengths = [tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None)]
    for path, module in model.named_modules():
        if path.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            # RoBERTa and its relatives reserve the first rows of the table for padding.
            padding_index = -1 if module.padding_idx is None else module.padding_idx
            lengths.append(module.num_embeddings - padding_index - 1)
    return min(length for length in lengths if length and length > 0)  # XLNet has -1


def reinitialised(model: PreTrainedModel, *, seed: int) -> PreTrainedModel:
    """Re-initialise all weights of a copy except its input embeddings (section 5).

    Input embeddings are the tables of words, positions and segments, and their normalisation.
    Tables of relative positions (MPNet, T5, DeBERTa) are a trained part of attention.  The new
    weights are those with which transformers begins a training, and the same for a seed; the
    caller's random numbers go on as if nothing had been drawn.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh = type(model)(model.config)
    for module, trained in _kept_modules(fresh, model):
        module.load_state_dict(trained.state_dict())
    fresh.tie_weights()
    return fresh.to(model.dtype).train(model.training)  # pyright: ignore[reportArgumentType]


def check_reinitialised(model: PreTrainedModel) -> None:
    """Raise ModelError if a control with random weights cannot be made of a model.

    A copy without memory for weights is made for this.
    """
    with torch.device("meta"):
        _kept_modules(type(model)(model.config), model)


def _kept_modules(
    fresh: PreTrainedModel, model: PreTrainedModel
) -> Iterator[tuple[nn.Module, nn.Module]]:
    """Pair the input embeddings of a control with those of its model."""
    controls = _input_embeddings(fresh)
    trained = _input_embeddings(model)
    if len(controls) != len(trained):
        problem = "its input embeddings cannot be kept in a control with random weights"
        raise ModelError(f"{type(model).__name__}: {problem}. Leave the controls out.")
    return zip(controls, trained, strict=True)


def _input_embeddings(model: PreTrainedModel) -> list[nn.Module]:
    """Find the modules of the input embeddings: one that holds them all, or its parts."""
    paths = {module: path for path, module in model.named_modules()}
    path, _, _ = paths[model.get_input_embeddings()].rpartition(".")
    holder = model.get_submodule(path)
    if path.endswith("embeddings"):
        return [holder]
    return [
        part
        for name, part in holder.named_children()
        if isinstance(part, nn.Embedding) or ("norm" in name and "emb" in name)
    ]
