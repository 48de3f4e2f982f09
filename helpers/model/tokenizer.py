"""The tokenizer of a checkpoint, and what it and the configuration say of a model's inputs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from torch import nn
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast

from helpers.errors import ModelError
from helpers.model.checkpoint import VOCABULARIES

# Of config.json, what determines no number: who wrote it, with what, and as what it was saved.
NAMES = ("_name_or_path", "architectures", "transformers_version", "torch_dtype", "dtype")


def read_tokenizer(name: str, folder: Path) -> PreTrainedTokenizerFast:
    """Return the fast tokenizer of a folder, which takes any text as text and cuts nothing.

    Raises:
        ModelError: there is none.
    """
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


def check_vocabulary(name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
    """Refuse a tokenizer that gives ids for which the model has no embedding."""
    rows = model.get_input_embeddings().num_embeddings
    entries = max(tokenizer.get_vocab().values()) + 1
    if entries > rows:
        raise ModelError(
            f"model {name!r}: the tokenizer has {entries} entries but the weights have {rows} "
            "embeddings; take tokenizer and weights of the same model"
        )


def configuration_sha256(folder: Path, tokenizer: PreTrainedTokenizerFast) -> str:
    """Return the hash of the settings that determine maps and gradients beside the weights."""
    settings = {
        "config": _without_names(json.loads((folder / "config.json").read_bytes())),
        "model_input_names": tokenizer.model_input_names,
        "special_tokens": tokenizer.special_tokens_map,
    }
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _without_names(config: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_names(value) if isinstance(value, dict) else value
        for key, value in config.items()
        if key not in NAMES
    }


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
    """Return the least of what the tokenizer says, what the configuration says, and the positions.

    RoBERTa and its kin leave the first rows of the table of positions to padding.
    """
    limits = [tokenizer.model_max_length]
    limits.append(getattr(model.config, "max_position_embeddings", None))
    for path, module in model.named_modules():
        if path.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            reserved = 0 if module.padding_idx is None else module.padding_idx + 1
            limits.append(module.num_embeddings - reserved)
    return min(limit for limit in limits if limit)
