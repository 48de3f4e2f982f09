"""Read the weights and the tokenizer of a checkpoint, and check that they fit each other.

All code comes from transformers, and none from a checkpoint.  Layer counts, head counts and names
of special tokens are read off the model.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers.processors import Sequence, TemplateProcessing
from torch import nn
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
from helpers.model.visible import probe_visible
from helpers.torch_utils import torch_device

PADDING_TOLERANCE = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
VOCABULARIES = ("tokenizer.json", "vocab.*", "*.model")
CAUSAL_HEAD = "CausalLM|LMHead"  # in the names of architectures
# Keys of config.json that do not affect results.
IGNORED_CONFIG_KEYS = ("_name_or_path", "architectures", "transformers_version", "torch_dtype",
                       "dtype")  # fmt: skip


def read_encoder(
    name: str, folder: Path, *, device: str, dtype: str, random_init: int | None
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast, dict[str, Any]]:
    """Read the model and the tokenizer in a folder; see `helpers.model.encoder.load_encoder`.

    Returns
    -------
    model : PreTrainedModel
        In evaluation mode, on the device.
    tokenizer : PreTrainedTokenizerFast
    properties : dict
        Attributes of `Encoder`.  The identity is the part that depends on configuration and
        tokenizer.
    """
    target_device = torch_device(device)
    transformers.logging.set_verbosity_error()  # it would report unused heads
    transformers.logging.disable_progress_bar()
    tokenizer = read_tokenizer(name, folder)
    has_mask = tokenizer.mask_token_id is not None
    model, objective = _read_model(name, folder, dtype, has_mask=has_mask)
    rows = model.get_input_embeddings().num_embeddings
    entries = max(tokenizer.get_vocab().values()) + 1
    if entries > rows:
        raise ModelError(
            f"model {name!r}: the tokenizer has {entries} entries but the weights have {rows} "
            "embeddings. Use a tokenizer and weights of the same model."
        )
    if random_init is not None:
        model = reinitialised(model, seed=random_init)
    model = model.to(target_device).eval().requires_grad_(False)
    layers, heads = attention_shape(name, model, tokenizer)
    ids = tokenizer("a b c", return_tensors="pt")["input_ids"].to(target_device)
    visible = probe_visible(name, model, ids, longest_input(model, tokenizer))
    if all(layer.causal for layer in visible):
        begin_with_bos(tokenizer)
    elif objective == "next-token":  # of a family that can be made to see later tokens
        model = model.base_model
        objective = "contrastive"
    tokenizer_facts = tokenizer_properties(model, tokenizer)
    config = json.loads((folder / "config.json").read_bytes())
    settings = {  # which determine maps and gradients next to the weights
        "config": {key: config[key] for key in config.keys() - set(IGNORED_CONFIG_KEYS)},
        "model_input_names": tokenizer.model_input_names,
        "special_tokens": tokenizer.special_tokens_map,
    }
    settings_text = json.dumps(settings, sort_keys=True, default=str)
    properties = {
        "identity": {
            "configuration_sha256": hashlib.sha256(settings_text.encode()).hexdigest(),
            "layers": layers,
            "heads": heads,
        },
        "layers": layers,
        "heads": heads,
        "objective": objective,
        "architecture": "".join((model.config.architectures or [])[:1]),
        "visible": [layer._asdict() for layer in visible],
        **tokenizer_facts,
    }
    return model, tokenizer, properties


def read_tokenizer(name: str, folder: Path) -> PreTrainedTokenizerFast:
    """Read the fast tokenizer of a folder, and let it treat any text as text and cut nothing."""
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    if not any(file for pattern in VOCABULARIES for file in folder.glob(pattern)):
        # transformers makes up a tokenizer without words then.
        raise ModelError(
            f"model {name!r}: there is no tokenizer (none of {', '.join(VOCABULARIES)}). Save the "
            "model's tokenizer with tokenizer.save_pretrained(folder)."
        )
    # A paragraph about BERT can contain the letters "[SEP]"; they are text there.
    tokenizer.split_special_tokens = True
    tokenizer.backend_tokenizer.encode_special_tokens = True
    # Some files ask for truncation and padding; examples are cut and padded elsewhere.
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def _read_model(
    name: str, folder: Path, dtype: str, *, has_mask: bool
) -> tuple[PreTrainedModel, str]:
    """Read the model, with its masked-LM or causal-LM head if the checkpoint has a trained one.

    ``has_mask`` says whether the tokenizer has a mask token, without which the masked-LM head is of
    no use.  Also returns the objective: that of the head, or without one that of sentence encoders.
    """
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    architecture = "".join((config.architectures or [])[:1])
    is_decoder = getattr(config, "is_decoder", False)  # of families that can be either
    has_causal_head = config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and (
        is_decoder or config.model_type not in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    )
    has_causal_head = has_causal_head and bool(re.search(CAUSAL_HEAD, architecture))
    has_masked_head = has_mask and config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    has_head = (has_causal_head or has_masked_head) and not config.is_encoder_decoder
    auto_model = AutoModel
    if has_head:
        auto_model = AutoModelForCausalLM if has_causal_head else AutoModelForMaskedLM
    model, report = from_pretrained(auto_model, folder, dtype)
    _check_weights(name, model, report)
    if config.is_encoder_decoder:
        return model.get_encoder(), "contrastive"
    if not has_head or report["missing_keys"]:
        # transformers has initialised a head at random that was never trained: leave it off.
        return model.base_model, "contrastive"
    return model, "next-token" if has_causal_head else "masked-lm"


def from_pretrained(
    auto_model: type, folder: Path, dtype: str
) -> tuple[PreTrainedModel, Mapping[str, Any]]:
    """Read a model, and a report on keys that are missing and on sizes that differ."""
    return auto_model.from_pretrained(
        folder,
        dtype=getattr(torch, dtype),
        attn_implementation="eager",
        use_safetensors=True,
        trust_remote_code=False,
        ignore_mismatched_sizes=True,  # they are refused by name
        output_loading_info=True,
    )


def _check_weights(name: str, model: PreTrainedModel, report: Mapping[str, Any]) -> None:
    """Raise ModelError if weights of the encoder are missing, of other sizes, or not finite."""
    if report["mismatched_keys"]:
        key, shape, expected_shape = min(report["mismatched_keys"])
        raise ModelError(
            f"model {name!r}: the weights of {key} are {list(shape)}, config.json makes them "
            f"{list(expected_shape)}. Use weights and a configuration of the same model."
        )
    encoder_parameters = set(model.base_model.parameters())
    missing_keys = [
        key
        for key, weight in model.named_parameters()
        if weight in encoder_parameters
        and key in report["missing_keys"]
        and "pooler." not in key  # sentence encoders leave it out: no map depends on it
    ]
    if missing_keys:
        raise ModelError(
            f"model {name!r}: the checkpoint has no weights for {missing_keys[0]} "
            f"({len(missing_keys)} missing). Check that it is complete, and of the architecture "
            "that config.json names."
        )
    for key, weight in model.named_parameters():
        if not weight.isfinite().all():
            raise ModelError(
                f"model {name!r}: {key} has weights that are NaN or infinite in {weight.dtype}. "
                f"Use a complete copy of the model{or_wider(weight.dtype)}."
            )


def attention_shape(
    name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast
) -> tuple[int, int]:
    """Count the layers and heads of a model by the maps that it returns.

    Returns
    -------
    layers, heads : int
        The number of layers, and of attention heads in each.

    Raises
    ------
    ModelError
        If there is not one full map for each layer and head, or padding changes it.
    """
    ids = tokenizer("a b c", return_tensors="pt")["input_ids"].to(model.device)
    n = ids.shape[1]
    passes = []
    for n_padding in (0, n):
        input_ids = F.pad(ids, (0, n_padding), value=tokenizer.pad_token_id or 0)
        mask = F.pad(torch.ones_like(ids), (0, n_padding))
        with torch.inference_mode():
            output = model(input_ids, attention_mask=mask, output_attentions=True)
        passes.append([layer for layer in output.get("attentions") or () if layer is not None])
    maps, maps_in_padding = passes
    shapes = {layer.shape for layer in maps}
    if len(maps) != model.config.num_hidden_layers or shapes != {(1, maps[0].shape[1], n, n)}:
        raise ModelError(
            f"model {name!r} gives no (heads, tokens, tokens) map for "
            "each layer. Use a model with full softmax attention in every layer, such as BERT."
        )
    without_padding = torch.stack(maps_in_padding)[..., :n, :n]
    difference = (torch.stack(maps) - without_padding).abs().max()
    if difference > PADDING_TOLERANCE[model.dtype]:
        raise ModelError(
            f"model {name!r}: its maps change with padding, so "
            "they would depend on the batch. Use a model that masks padding, such as BERT."
        )
    return len(maps), maps[0].shape[1]


def begin_with_bos(tokenizer: PreTrainedTokenizerFast) -> None:
    """Have every text begin with the tokenizer's bos_token, unless a special token begins it.

    Otherwise the first word of a text would be the one that takes the attention which has no
    better use.  A tokenizer without a bos_token stays as it is.
    """
    backend = tokenizer.backend_tokenizer
    bos = tokenizer.bos_token
    if bos is None or backend.encode("a").special_tokens_mask[0]:
        return
    beginning = TemplateProcessing(
        single=[bos, "$A"], pair=[bos, "$A", "$B:1"], special_tokens=[(bos, tokenizer.bos_token_id)]
    )
    steps = [backend.post_processor] if backend.post_processor else []
    backend.post_processor = Sequence([*steps, beginning])


def tokenizer_properties(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast
) -> dict[str, Any]:
    """Describe the inputs that a model takes: special tokens, token types and the longest input."""
    backend = tokenizer.backend_tokenizer
    pair = backend.encode("a", "b")
    special_ids = np.unique(np.array(pair.ids)[np.array(pair.special_tokens_mask) == 1]).tolist()
    used_tokens = tokenizer.convert_ids_to_tokens(special_ids)
    special_tokens = {}
    for role, token in (("cls", tokenizer.cls_token), ("sep", tokenizer.sep_token)):
        special_tokens[role] = token if token in used_tokens else None
    text = backend.encode("a")
    if text.special_tokens_mask[0] and text.tokens[0] not in special_tokens.values():
        special_tokens["first"] = text.tokens[0]
    # As in transformers, the tokenizer decides; besides, the model must know two types.
    tokenizer_has_types = "token_type_ids" in tokenizer.model_input_names and any(pair.type_ids)
    model_has_types = (getattr(model.config, "type_vocab_size", 0) or 0) > 1
    # Byte-level vocabularies mark a word by the space before it.
    separate = backend.encode(["a", "a"], is_pretokenized=True, add_special_tokens=False)
    running = backend.encode("a a", add_special_tokens=False)
    return {
        "tokenizer_sha256": hashlib.sha256(backend.to_str().encode()).hexdigest(),
        "special_tokens": special_tokens,
        "special_ids": special_ids,
        "word_prefix": "" if separate.tokens == running.tokens else " ",
        "takes_token_types": tokenizer_has_types and model_has_types,
        "max_length": longest_input(model, tokenizer),
    }


def longest_input(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> int:
    """Find the number of tokens of the longest input that a model takes."""
    lengths = [tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None)]
    for path, module in model.named_modules():
        if path.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            # RoBERTa and its relatives reserve the first rows of the table for padding.
            padding_index = -1 if module.padding_idx is None else module.padding_idx
            lengths.append(module.num_embeddings - padding_index - 1)
    return min(filter(None, lengths))


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
    for module, trained in zip(_input_embeddings(fresh), _input_embeddings(model), strict=True):
        module.load_state_dict(trained.state_dict())
    fresh.tie_weights()
    return fresh.to(model.dtype).train(model.training)


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
