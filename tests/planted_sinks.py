"""A tiny BERT whose queries look for one dimension, which only [CLS] has."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers as hf
from tiny_models import BERT_SPECIALS, save, wordpiece

from helpers.model.loading import Model, load_model

DIMENSION = 5
SECOND = 7
WIDTH = 24
HEADS = 4
LAYERS = 2
MARK = 12.0  # of [CLS] in the dimension


def planted_model(
    *,
    dimension: int | None = DIMENSION,
    brings: float | None = None,
    every_query: bool = True,
    next_sink: str = "",
) -> tuple[hf.PreTrainedModel, hf.PreTrainedTokenizerBase]:
    """Make the model and its tokenizer.

    Parameters
    ----------
    dimension
        The dimension of the mark.  Without it, all queries look for the vector of [CLS], all
        dimensions of which differ a little from those of other tokens.
    brings
        Which part of its vector [CLS] brings to others, 0 to 1; words bring all of theirs.  None:
        no token brings anything, so that the vectors stay the normalised embeddings.
    every_query
        Whether every query looks for the mark, and not only about half of them.
    next_sink
        A word that has a quarter of the mark.
    """
    tokenizer = hf.BertTokenizer(vocab=wordpiece(BERT_SPECIALS))
    config = hf.BertConfig(
        vocab_size=len(tokenizer), hidden_size=WIDTH, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, intermediate_size=4, max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(0)
    model = hf.BertForMaskedLM(config)
    embeddings = model.bert.embeddings
    with torch.no_grad():
        embeddings.position_embeddings.weight.zero_()
        embeddings.token_type_embeddings.weight.zero_()
        words = embeddings.word_embeddings.weight
        words.normal_()
        cls_vector = words[tokenizer.cls_token_id]
        sought = 0.12 * cls_vector
        if dimension is not None:
            words[:, dimension] = 0
            cls_vector[dimension] = MARK
            sought = 0.2 * torch.eye(WIDTH)[dimension]
        if next_sink:
            words[tokenizer.convert_tokens_to_ids(next_sink), dimension] = MARK / 4
        direction = torch.nn.functional.normalize(embeddings.LayerNorm(cls_vector), dim=0)
        for layer in model.bert.encoder.layer:
            attention = layer.attention.self
            layer.output.dense.weight.zero_()
            attention.query.weight.zero_()
            attention.query.bias.fill_(4)
            if not every_query:
                attention.query.weight[:, SECOND] = 6.0
                attention.query.bias.zero_()
            attention.key.weight[:] = sought
            value_map = torch.eye(WIDTH) - (1 - (brings or 0.0)) * torch.outer(direction, direction)
            attention.value.weight.copy_(value_map)
            layer.attention.output.dense.weight.copy_(torch.eye(WIDTH) * (brings is not None))
    return model, tokenizer


def load_planted(folder: Path, **options) -> Model:
    """Write the model, and load it."""
    return load_model(str(save(folder, *planted_model(**options))), device="cpu")
