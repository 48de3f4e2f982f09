"""Read the weights of a checkpoint into a model that returns its attention maps.

Code comes from transformers itself and never from a checkpoint.  Nothing here knows a layer
count, a head count or the name of a special token: they are read off the model.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)

from helpers.errors import ModelError
from helpers.model.checkpoint import WAYS_OUT, Device, DType, Objective, weight_files
from helpers.model.parallel import torch_device
from helpers.model.tokenizer import (
    check_vocabulary,
    configuration_sha256,
    input_facts,
    read_tokenizer,
)

LARGEST = 1 << 24  # number in a configuration
PADDING_TOLERANCE = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}


@dataclass(frozen=True)
class Loaded:
    """A model on its device with its tokenizer, and the facts that `Encoder` has of them."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    facts: Mapping[str, Any]


def read_encoder(
    name: str, folder: Path, *, device: Device, dtype: DType, random_init: int | None
) -> Loaded:
    """Read the model and the tokenizer in a folder; see `helpers.model.encoder.load`.

    Raises:
        ModelError: they cannot be read, do not fit each other, or give no attention maps.
    """
    with _quiet(), _explained(name):
        shapes = _shapes(name, folder)
        _check_numbers(name, folder, len(shapes))
        tokenizer = read_tokenizer(name, folder)
        model, objective = _model(name, folder, dtype, shapes)
        check_vocabulary(name, model, tokenizer)
        if random_init is not None:
            model = reinitialised(model, seed=random_init)
        model = model.to(torch_device(device)).eval().requires_grad_(False)
        layers, heads = geometry(name, model, tokenizer)
    if objective == "masked-lm" and tokenizer.mask_token_id is None:
        objective = "contrastive"
    facts = {
        "configuration_sha256": configuration_sha256(folder, tokenizer),
        "layers": layers,
        "heads": heads,
        "objective": objective,
        **input_facts(model, tokenizer),
    }
    return Loaded(model, tokenizer, facts)


def geometry(
    name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast
) -> tuple[int, int]:
    """Return (layers, heads) as the model shows them on a real input.

    Raises:
        ModelError: there is not one full map for each layer and head, or padding changes it.
    """
    tokens = tokenizer("a b c", return_tensors="pt", return_attention_mask=True).to(model.device)
    known = inspect.signature(model.forward).parameters
    inputs = {key: value for key, value in tokens.items() if key in known}
    maps = _maps(model, inputs)
    shapes = {None if layer is None else tuple(layer.shape[1:]) for layer in maps}
    n = tokens["input_ids"].shape[1]
    layers = getattr(model.config, "num_hidden_layers", len(maps))
    if len(shapes) != 1 or None in shapes or maps[0].shape[2:] != (n, n) or len(maps) != layers:
        raise ModelError(
            f"model {name!r} ({model.config.model_type}): gives no (heads, tokens, tokens) map for "
            "each layer; it takes a model with full softmax attention throughout, such as BERT"
        )
    padding = {"input_ids": tokenizer.pad_token_id or 0}
    longer = {key: F.pad(value, (0, n), value=padding.get(key, 0)) for key, value in inputs.items()}
    for alone, padded in zip(maps, _maps(model, longer), strict=True):
        if (alone - padded[..., :n, :n]).abs().max() > PADDING_TOLERANCE[alone.dtype]:
            raise ModelError(
                f"model {name!r} ({model.config.model_type}): its maps change with padding, so "
                "they would depend on the batch; it takes a model that masks it, such as BERT"
            )
    return len(maps), maps[0].shape[1]


def reinitialised(model: PreTrainedModel, *, seed: int) -> PreTrainedModel:
    """Return a copy with the input embeddings kept and all other weights drawn anew (section 5).

    Input embeddings are the tables of words, positions and segments, and their normalisation.
    Tables of relative positions (MPNet, T5, DeBERTa) are a trained part of attention.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh = type(model)(model.config)
    for own, trained in zip(_input_embeddings(fresh), _input_embeddings(model), strict=True):
        own.load_state_dict(trained.state_dict())
    fresh.tie_weights()
    return fresh.to(model.dtype).train(model.training)


def _input_embeddings(model: PreTrainedModel) -> list[nn.Module]:
    """Return the table of words and what stands beside it: one module, or the parts of one."""
    words = model.get_input_embeddings()
    path, holder = next(
        (path, module)
        for path, module in model.named_modules()
        if any(part is words for part in module.children())
    )
    if path.endswith("embeddings"):
        return [holder]
    return [
        part
        for name, part in holder.named_children()
        if isinstance(part, nn.Embedding) or ("norm" in name and "emb" in name)
    ]


def _model(
    name: str, folder: Path, dtype: DType, shapes: Mapping[str, list[int]]
) -> tuple[PreTrainedModel, Objective]:
    """Return the model, with its language-modelling head if the checkpoint has a trained one.

    The objective is what that head was trained for; ``contrastive`` where there is none.
    """
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    auto, objective = _head_class(config)
    _check_fit(name, _mismatched(auto, config, shapes))
    model, report = auto.from_pretrained(
        folder,
        config=config,
        dtype=getattr(torch, dtype),
        attn_implementation="eager",
        use_safetensors=True,
        trust_remote_code=False,
        ignore_mismatched_sizes=True,  # they are in the report, and refused below
        output_loading_info=True,
    )
    missing = set(report["missing_keys"])
    _check_fit(name, report["mismatched_keys"])
    _check_weights(name, model, missing)
    _check_finite(name, model)
    if config.is_encoder_decoder:
        return model.get_encoder(), objective
    if missing:
        # A head that transformers has just drawn at random was never trained: leave it off.
        return model.base_model, "contrastive"
    return model, objective


def _head_class(config: PretrainedConfig) -> tuple[type, Objective]:
    """Return the auto class to load with, and the objective if its head proves to be trained."""
    if not config.is_encoder_decoder:
        if config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
            return AutoModelForMaskedLM, "masked-lm"
        if config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
            return AutoModelForCausalLM, "next-token"
    return AutoModel, "contrastive"


def _check_fit(name: str, mismatched: Collection[tuple]) -> None:
    """Refuse weights of other sizes than the configuration's."""
    if mismatched:
        key, found, expected = min(mismatched)
        raise ModelError(
            f"model {name!r}: the weights of {key} are {list(found)}, config.json makes them "
            f"{list(expected)}; take weights and configuration of the same model"
        )


def _check_weights(name: str, model: PreTrainedModel, missing: Iterable[str]) -> None:
    """Refuse a checkpoint that lacks weights of the encoder itself."""
    inner = {key for key, _ in model.base_model.named_parameters()}
    prefix = f"{model.base_model_prefix}."
    body = sorted(key for key in missing if key.removeprefix(prefix) in inner)
    # Sentence encoders leave the pooler out: no map depends on it.
    body = [key for key in body if "pooler." not in key]
    if body:
        raise ModelError(
            f"model {name!r}: the checkpoint has no weights for {body[0]} ({len(body)} missing); "
            "is it complete, and of the architecture that config.json names?"
        )


def _shapes(name: str, folder: Path) -> dict[str, list[int]]:
    """Return the shape of each tensor of a checkpoint; none is read."""
    shapes: dict[str, list[int]] = {}
    for file in weight_files(name, folder):
        with safe_open(file, framework="pt") as weights:
            shapes |= {key: weights.get_slice(key).get_shape() for key in list(weights.keys())}
    return shapes


def _check_numbers(name: str, folder: Path, tensors: int) -> None:
    """Refuse a configuration that would take for ever to build, before anything is built."""
    for key, value in _whole_numbers(json.loads((folder / "config.json").read_bytes())):
        most, what = LARGEST, "no model has more than"
        if key.endswith(("layers", "layer")):
            most, what = tensors, "the tensors of its weights are"
        if value > most:
            raise ModelError(
                f"model {name!r}: config.json has {value:,} as {key}, but {what} {most:,}; take "
                "weights and configuration of the same model"
            )


def _whole_numbers(config: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the whole numbers of a configuration and of those inside it, with their names."""
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _whole_numbers(value)
        elif isinstance(value, int):
            yield key, value


def _mismatched(
    auto: type, config: PretrainedConfig, shapes: Mapping[str, list[int]]
) -> list[tuple]:
    """Return what has another size in the checkpoint, compared without allocating anything."""
    with torch.device("meta"):
        skeleton = auto.from_config(config, trust_remote_code=False)
    prefix = f"{skeleton.base_model_prefix}."
    names = {key.removeprefix(prefix): key for key in shapes}
    parameters = {key.removeprefix(prefix): one for key, one in skeleton.named_parameters()}
    return [
        (names[key], shapes[names[key]], parameters[key].shape)
        for key in names.keys() & parameters.keys()
        if shapes[names[key]] != list(parameters[key].shape)
    ]


def _check_finite(name: str, model: PreTrainedModel) -> None:
    for key, weight in model.named_parameters():
        if not weight.isfinite().all():
            raise ModelError(
                f"model {name!r}: {key} has weights that are NaN or infinite in {weight.dtype}; "
                "take a whole copy of the model, or --dtype float32"
            )


@torch.inference_mode()
def _maps(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    output = model(**inputs, output_attentions=True)
    return getattr(output, "attentions", None) or ()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from reporting on unused heads, which is what is wanted here."""
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(level)
        transformers.logging.enable_progress_bar()


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn a loading failure into one line with the ways out."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:  # a broken checkpoint makes the library fail anywhere
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        raise ModelError(
            f"model {name!r}: cannot be loaded ({type(error).__name__}: {reason[:300]}); {WAYS_OUT}"
        ) from error
