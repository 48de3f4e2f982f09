"""One pass of a model over a padded batch: token ids in, attention maps out."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from helpers.data.records import Record
from helpers.errors import ModelError
from helpers.model.encoder import Encoder
from helpers.model.word_attention import word_groups

Inputs = dict[str, Any]
Maps = list[Float[Tensor, "batch head query key"]]  # a layer each
States = list[Float[Tensor, "batch token width"]]  # of the embeddings and of each layer


def model_inputs(encoder: Encoder, record: Record) -> Inputs:
    """Return the token ids of a record (and types, or word groups) as lists."""
    if "tokens" in record:
        ids = encoder.tokenizer.convert_tokens_to_ids(record["tokens"])
        types = [int(position >= record["second"]) for position in range(len(ids))]
        return {"input_ids": ids, "token_type_ids": types}
    encoding = encoder.encode_words(record["words"])
    return {
        "input_ids": encoding.ids,
        "token_type_ids": encoding.type_ids,
        "groups": word_groups(encoding.word_ids),
    }


@torch.inference_mode()
def forward(encoder: Encoder, inputs: list[Inputs], *, hidden: bool = False) -> tuple[Maps, States]:
    """Run one padded batch; return each layer's maps (and vectors), padding not yet cropped."""
    output = encoder.model.base_model(
        **padded(encoder, inputs), output_attentions=True, output_hidden_states=hidden
    )
    if len(output.attentions) != encoder.layers:
        raise ModelError(
            f"model {encoder.name!r}: returned {len(output.attentions)} layers of maps, expected "
            f"{encoder.layers}; load it with helpers.model.encoder.load"
        )
    return list(output.attentions), list(output.hidden_states or ())


def padded(encoder: Encoder, inputs: list[Inputs]) -> dict[str, Tensor]:
    """Return a batch of inputs as padded tensors on the model's device."""
    longest = max(len(item["input_ids"]) for item in inputs)
    padding = {"input_ids": encoder.tokenizer.pad_token_id or 0, "token_type_ids": 0}
    if not encoder.takes_token_types:
        del padding["token_type_ids"]
    batch = {
        name: [item[name] + [value] * (longest - len(item[name])) for item in inputs]
        for name, value in padding.items()
    }
    batch["attention_mask"] = [
        [1] * len(item["input_ids"]) + [0] * (longest - len(item["input_ids"])) for item in inputs
    ]
    return {name: torch.tensor(rows, device=encoder.device) for name, rows in batch.items()}
