"""Read the weights and the tokenizer of a checkpoint, and check that they fit each other.

Code comes from transformers itself and never from a checkpoint.  Nothing here knows a layer
count, a head count or the name of a special token: they are read off the model.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)

from helpers.errors import ModelError, or_wider
from helpers.model.portable_random import PortableRandom
from helpers.model.sites import focus
from helpers.work import torch_device

PADDING_TOLERANCE = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
VOCABULARIES = ("tokenizer.json", "vocab.*", "*.model")
# Of config.json, what determines no number: who wrote it, with what, and as what it was saved.
NAMES = ("_name_or_path", "architectures", "transformers_version", "torch_dtype", "dtype")


@dataclass(frozen=True)
class Loaded:
    """A model on its device with its tokenizer, and the facts that `Encoder` has of them."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    facts: Mapping[str, Any]


def read_encoder(
    name: str,
    folder: Path,
    *,
    device: str,
    dtype: str,
    random_init: int | None,
    temperatures: Sequence[Sequence[float]] | None,
) -> Loaded:
    """Read the model and the tokenizer in a folder; see `helpers.model.encoder.load`."""
    with _quiet():
        tokenizer = read_tokenizer(name, folder)
        model, objective = _model(name, folder, dtype)
        rows = model.get_input_embeddings().num_embeddings
        entries = max(tokenizer.get_vocab().values()) + 1
        if entries > rows:
            raise ModelError(
                f"model {name!r}: the tokenizer has {entries} entries but the weights have {rows} "
                "embeddings; take tokenizer and weights of the same model"
            )
        if random_init is not None:
            model = reinitialised(model, seed=random_init)
        model = model.to(torch_device(device)).eval().requires_grad_(False)
        layers, heads = geometry(name, model, tokenizer)
        if temperatures is not None:
            focus(model.base_model, temperatures)
    if objective == "masked-lm" and tokenizer.mask_token_id is None:
        objective = "contrastive"
    configuration = configuration_sha256(folder, tokenizer)
    identity = {"configuration_sha256": configuration, "layers": layers, "heads": heads}
    inputs = {"objective": objective, **input_facts(model, tokenizer)}
    return Loaded(model, tokenizer, {"identity": identity, "inputs": inputs})


def read_tokenizer(name: str, folder: Path) -> PreTrainedTokenizerFast:
    """Return the fast tokenizer of a folder, which takes any text as text and cuts nothing."""
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    if not tokenizer.is_fast:
        raise ModelError(
            f"model {name!r}: its tokenizer has no fast version, which aligns tokens to words; "
            "save one beside the weights as tokenizer.json"
        )
    if not any(file for pattern in VOCABULARIES for file in folder.glob(pattern)):
        # transformers makes up a tokenizer without words then.
        raise ModelError(
            f"model {name!r}: there is no tokenizer (none of {', '.join(VOCABULARIES)}); save the "
            "model's own with tokenizer.save_pretrained(folder)"
        )
    # A paragraph about BERT can contain the letters "[SEP]"; they are text there.
    tokenizer.split_special_tokens = True
    tokenizer.backend_tokenizer.encode_special_tokens = True
    # Some files bring truncation and padding along; examples are cut and padded elsewhere.
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def _model(name: str, folder: Path, dtype: str) -> tuple[PreTrainedModel, str]:
    """Return the model, with its language-modelling head if the checkpoint has a trained one.

    The objective is what that head was trained for; ``contrastive`` where there is none.
    """
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    auto, objective = AutoModel, "contrastive"
    if not config.is_encoder_decoder:
        if config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
            auto, objective = AutoModelForMaskedLM, "masked-lm"
        elif config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
            auto, objective = AutoModelForCausalLM, "next-token"
    model, report = auto.from_pretrained(
        folder,
        config=config,
        dtype=getattr(torch, dtype),
        attn_implementation="eager",
        use_safetensors=True,
        trust_remote_code=False,
        ignore_mismatched_sizes=True,  # they are refused below, by name
        output_loading_info=True,
    )
    _check_weights(name, model, report)
    if config.is_encoder_decoder:
        return model.get_encoder(), objective
    if report["missing_keys"]:
        # A head that transformers has just drawn at random was never trained: leave it off.
        return model.base_model, "contrastive"
    return model, objective


def _check_weights(name: str, model: PreTrainedModel, report: Mapping[str, Any]) -> None:
    """Refuse weights of the encoder that are missing, of other sizes, or not finite."""
    if report["mismatched_keys"]:
        key, found, expected = min(report["mismatched_keys"])
        raise ModelError(
            f"model {name!r}: the weights of {key} are {list(found)}, config.json makes them "
            f"{list(expected)}; take weights and configuration of the same model"
        )
    inner, prefix = dict(model.base_model.named_parameters()), f"{model.base_model_prefix}."
    body = sorted(key for key in report["missing_keys"] if key.removeprefix(prefix) in inner)
    # Sentence encoders leave the pooler out: no map depends on it.
    body = [key for key in body if "pooler." not in key]
    if body:
        raise ModelError(
            f"model {name!r}: the checkpoint has no weights for {body[0]} ({len(body)} missing); "
            "is it complete, and of the architecture that config.json names?"
        )
    for key, weight in model.named_parameters():
        if not weight.isfinite().all():
            raise ModelError(
                f"model {name!r}: {key} has weights that are NaN or infinite in {weight.dtype}; "
                f"take a whole copy of the model{or_wider(weight.dtype)}"
            )


def geometry(
    name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast
) -> tuple[int, int]:
    """Return (layers, heads) as the model shows them on a real input.

    ModelError where there is not one full map for each layer and head, or padding changes it.
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


@torch.inference_mode()
def _maps(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    return getattr(model(**inputs, output_attentions=True), "attentions", None) or ()


def configuration_sha256(folder: Path, tokenizer: PreTrainedTokenizerFast) -> str:
    """Return the hash of the settings that determine maps and gradients beside the weights."""

    def without_names(part: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in part.items() if key not in NAMES}

    settings = {
        "config": json.loads((folder / "config.json").read_bytes(), object_hook=without_names),
        "model_input_names": tokenizer.model_input_names,
        "special_tokens": tokenizer.special_tokens_map,
    }
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def input_facts(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """Return what a description says of the inputs."""
    backend = tokenizer.backend_tokenizer
    pair = backend.encode("a", "b")
    special = {i for i, mask in zip(pair.ids, pair.special_tokens_mask, strict=True) if mask}
    used = {tokenizer.convert_ids_to_tokens(token_id) for token_id in special}
    parts = {"cls": tokenizer.cls_token, "sep": tokenizer.sep_token}
    return {
        "tokenizer_sha256": hashlib.sha256(backend.to_str().encode()).hexdigest(),
        "special_tokens": {part: token if token in used else None for part, token in parts.items()},
        "special_ids": sorted(special),
        # The tokenizer has the say, as it has in transformers; the model must know two types.
        "takes_token_types": "token_type_ids" in tokenizer.model_input_names
        and (getattr(model.config, "type_vocab_size", 0) or 0) > 1
        and any(pair.type_ids),
        "max_length": _max_length(model, tokenizer),
    }


def _max_length(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> int:
    """Return the least of what tokenizer and configuration say, and the table of positions has.

    RoBERTa and its kin leave the first rows of it to padding.
    """
    limits = [tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None)]
    for path, module in model.named_modules():
        if path.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            reserved = 0 if module.padding_idx is None else module.padding_idx + 1
            limits.append(module.num_embeddings - reserved)
    return min(limit for limit in limits if limit)


def reinitialised(model: PreTrainedModel, *, seed: int) -> PreTrainedModel:
    """Return a copy with the input embeddings kept and all other weights drawn anew (section 5).

    Input embeddings are the tables of words, positions and segments, and their normalisation.
    Tables of relative positions (MPNet, T5, DeBERTa) are a trained part of attention.  The weights
    of a seed are the same on every processor (`helpers.model.portable_random`).
    """
    with torch.random.fork_rng(devices=[]), PortableRandom():
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


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from reporting unused heads and its progress."""
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(level)
        transformers.logging.enable_progress_bar()
