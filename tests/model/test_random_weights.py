"""The control of random weights keeps the input embeddings, and nothing else."""

from __future__ import annotations

import pytest
import tiny_models
import torch
import transformers as hf
from tiny_models import FAMILIES

from helpers.model.encoder import load
from helpers.model.random_weights import reinitialised
from helpers.store.extract import extract

# A trained part of attention, though transformers keeps them in an nn.Embedding.
ATTENTION_TABLES = ("relative_attention_bias", "rel_embeddings")


@pytest.mark.parametrize("family", FAMILIES)
def test_random_initialisation_keeps_the_embeddings_alone(family, tiny_encoder):
    trained = tiny_encoder(family).model
    control = reinitialised(trained, seed=3)
    again, other = reinitialised(trained, seed=3), reinitialised(trained, seed=4)
    tables = [
        f"{path}.weight"
        for path, module in trained.named_modules()
        if isinstance(module, torch.nn.Embedding) and not path.endswith(ATTENTION_TABLES)
    ]
    assert tables
    tied = trained.get_output_embeddings()
    others = []
    for name, weight in control.named_parameters():
        before = trained.get_parameter(name)
        if tied is not None and before is tied.weight:
            assert weight is control.get_input_embeddings().weight
            name = tables[0]
        assert torch.equal(weight, again.get_parameter(name)), name
        if name in tables or ".embeddings." in f".{name}":
            assert torch.equal(weight, before), name
            assert weight is not before
        else:
            others.append(name)
            assert not torch.equal(weight, before), name
            if weight.ndim == 2:
                assert not torch.equal(weight, other.get_parameter(name)), name
    assert any(f"{table}." in name for table in ATTENTION_TABLES for name in others) == (
        family in {"mpnet", "t5", "deberta", "deberta_v2"}
    )


def test_random_initialisation_keeps_a_normalisation_beside_the_tables(tiny_encoder):
    config = hf.BartConfig(
        decoder_attention_heads=2,
        vocab_size=32,
        d_model=8,
        encoder_layers=1,
        encoder_attention_heads=2,
        encoder_ffn_dim=8,
    )
    trained = tiny_models.spread(hf.BartModel(config).get_encoder())
    control = reinitialised(trained, seed=0)
    kept = {
        name for name, weight in control.named_parameters()
        if torch.equal(weight, trained.get_parameter(name))
    }  # fmt: skip
    norm = {"layernorm_embedding.weight", "layernorm_embedding.bias"}
    assert kept == {"embed_tokens.weight", "embed_positions.weight"} | norm


def test_random_initialisation_follows_the_models_own_scheme(tiny_encoder):
    control = reinitialised(tiny_encoder("bert").model, seed=0)
    layer = control.bert.encoder.layer[0].attention.self
    weights = torch.cat([p.flatten() for p in (layer.query.weight, layer.key.weight)])
    assert weights.std().item() == pytest.approx(control.config.initializer_range, rel=0.1)
    assert not layer.query.bias.any()


def test_random_initialisation_leaves_the_global_generator_alone(tiny_encoder):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    reinitialised(tiny_encoder("bert").model, seed=0)
    assert torch.equal(torch.rand(3), expected)


def test_the_seed_is_part_of_the_identity(tiny_folder, segments, own_cache):
    control = load(str(tiny_folder("bert")), device="cpu", random_init=3)
    assert control.identity["random_init"] == 3
    assert control.slug == "bert-random-3"
    store = extract(control, segments, max_tokens=60)
    assert store.spec.model["random_init"] == 3
    assert "random-3" in store.folder.name
