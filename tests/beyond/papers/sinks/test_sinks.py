"""The first token as a sink, against scores and products that loops compute."""

import numpy as np
import pandas as pd
import pytest
import torch
from store_tools import many_segments

from beyond.papers.sinks import lenses, sinks
from helpers.model.forward import forward, model_inputs
from helpers.store.extract import extract

SEGMENTS = 5
HEADS = 4
WIDTH = 6  # of a head
SIDES = ["query bias", "query mean", "query position", "query content", "key content"]


@pytest.fixture(scope="module")
def source(tiny_encoder):
    return extract(tiny_encoder("bert"), many_segments(SEGMENTS), max_tokens=60, stream=True)


@torch.no_grad()
def projections(encoder, inputs):
    """Project the states of a text by hand: queries and keys [layer, head, token, width]."""
    _, states = forward(encoder, [inputs])
    queries = []
    keys = []
    for layer, state in zip(encoder.model.base_model.encoder.layer, states[:-1], strict=True):
        attention = layer.attention.self
        for projection, vectors in ((attention.query, queries), (attention.key, keys)):
            projected = state[0].clone() @ projection.weight.T + projection.bias
            vectors.append(projected.double().unflatten(-1, (HEADS, WIDTH)).transpose(0, 1))
    return torch.stack(queries).numpy(), torch.stack(keys).numpy()


def leads_by_hand(encoder, inputs):
    """Compute the leads from the scores of each pair of tokens: [layer, head, query]."""
    queries, keys = projections(encoder, inputs)
    layers, heads, n_tokens, _ = queries.shape
    leads = np.zeros((layers, heads, n_tokens - 1))
    for layer, head, query in np.ndindex(leads.shape):
        scores = []
        for key in range(n_tokens):
            product = queries[layer, head, query + 1] @ keys[layer, head, key]
            scores.append(product / WIDTH**0.5)
        leads[layer, head, query] = scores[0] - np.mean(scores[1:])
    return leads


def text_inputs(encoder, source):
    return [model_inputs(encoder, record) for record in source.records()]


def test_first_token_leads_are_those_of_scores_computed_by_hand(tiny_encoder, source):
    encoder = tiny_encoder("bert")
    inputs = text_inputs(encoder, source)[0]
    leads = sinks.first_token_leads(encoder, inputs)
    np.testing.assert_allclose(leads, leads_by_hand(encoder, inputs), rtol=1e-3, atol=1e-4)


def test_first_token_leads_under_a_causal_mask_are_over_visible_keys(tiny_encoder):
    encoder = tiny_encoder("llama")
    inputs = {"input_ids": [5, 6, 7, 8], "token_type_ids": [0] * 4}
    leads = sinks.first_token_leads(encoder, inputs)
    prefix = {name: values[:3] for name, values in inputs.items()}
    np.testing.assert_allclose(
        leads[..., :2], sinks.first_token_leads(encoder, prefix), rtol=1e-3, atol=1e-4
    )


def test_split_leads_finds_planted_parts():
    rng = np.random.default_rng(0)
    shape = (400, 2, 3, 50)  # [text, layer, head, query]
    position = np.where(np.arange(50) % 2, 1.5, -1.5)
    leads = 4 + position + 0.5 * rng.standard_normal(shape)
    leads[:, 1] += 2
    table = sinks.split_leads(leads)
    assert table["layer"].to_list() == [1, 2]
    np.testing.assert_allclose(table["constant"], [4, 6], atol=0.02)
    np.testing.assert_allclose(table["position"], 1.5, atol=0.02)
    np.testing.assert_allclose(table["content"], 0.5, atol=0.02)


def test_largest_components_of_two_texts():
    states = [
        np.array([[0.0, -9.0, 1.0], [1.0, 2.0, 3.0]]),
        np.array([[0.0, -5.0, 3.0], [4.0, 0.0, 1.0], [0.0, 1.0, 2.0]]),
    ]
    components = sinks.largest_components(states)
    median = np.median([0, 9, 1, 1, 2, 3, 0, 5, 3, 4, 0, 1, 0, 1, 2])
    assert components.dimensions == (1, 2)
    assert components.means == pytest.approx((-11 / 5, 10 / 5))
    assert components.over_median == pytest.approx(7 / median)
    assert components.others_over_median == pytest.approx((3 + (4 + 2) / 2) / 2 / median)


def test_dimensions_are_set_to_their_means_before_every_layer(tiny_encoder, source):
    encoder = tiny_encoder("bert")
    inputs = text_inputs(encoder, source)
    components = sinks.layer_components(encoder, inputs)
    before = []
    modules = sinks.layer_modules(encoder.model.base_model)
    with sinks.set_dimensions_to_means(encoder, components, 1):
        handles = [
            module.register_forward_pre_hook(lambda _module, args: before.append(args[0].clone()))
            for module in modules
        ]
        forward(encoder, inputs[:1])
    for handle in handles:
        handle.remove()
    for states, layer in zip(before, components, strict=True):
        means = states[..., layer.dimensions[1]]
        torch.testing.assert_close(means, torch.full_like(means, layer.means[1]))
        assert states[..., layer.dimensions[0]].std() > 0
    with sinks.set_dimensions_to_means(encoder, components, None):
        unchanged, _ = forward(encoder, inputs[:1])
    expected, _ = forward(encoder, inputs[:1])
    assert torch.equal(torch.stack(unchanged), torch.stack(expected))


def products_by_hand(encoder, source):
    """Divide leads between query and key as `split_sides` does, product by product."""
    biases = [
        layer.attention.self.query.bias.detach().double().numpy().reshape(HEADS, WIDTH)
        for layer in encoder.model.base_model.encoder.layer
    ]
    texts = [projections(encoder, inputs) for inputs in text_inputs(encoder, source)]
    n_tokens = min(queries.shape[2] for queries, _ in texts)
    rows = []
    for layer in range(encoder.layers):
        values = {name: [] for name in SIDES}
        for head in range(HEADS):
            queries = [text[0][layer, head, 1:n_tokens] for text in texts]
            lead_keys = []
            for _, keys in texts:
                key = keys[layer, head, 0] - keys[layer, head, 1:].mean(axis=0)
                lead_keys.append(key / WIDTH**0.5)
            mean_key = np.mean(lead_keys, axis=0)
            positions = np.mean(queries, axis=0)
            mean_query = positions.mean(axis=0)
            bias = biases[layer][head]
            values["query bias"].append(bias @ mean_key)
            values["query mean"].append((mean_query - bias) @ mean_key)
            for position, position_mean in enumerate(positions):
                values["query position"].append(((position_mean - mean_query) @ mean_key) ** 2)
                for text in queries:
                    change = text[position] - position_mean
                    values["query content"].append((change @ mean_key) ** 2)
            for key in lead_keys:
                values["key content"].append((mean_query @ (key - mean_key)) ** 2)
        means = {name: np.mean(products) for name, products in values.items()}
        for name in SIDES[2:]:
            means[name] = means[name] ** 0.5
        rows.append(means)
    return pd.DataFrame(rows)


def test_side_table_has_the_products_that_are_computed_by_hand(tiny_encoder, source):
    encoder = tiny_encoder("bert")
    table = sinks.side_table(encoder, list(source.records()))
    assert table["layer"].to_list() == [1, 2, 3]
    expected = products_by_hand(encoder, source)
    np.testing.assert_allclose(table[SIDES], expected[SIDES], rtol=1e-3, atol=1e-4)


def test_sides_of_the_mean_add_up_to_the_lead_of_one_text(tiny_encoder, source):
    encoder = tiny_encoder("bert")
    (record, *_) = source.records()
    table = sinks.side_table(encoder, [record])
    leads = leads_by_hand(encoder, model_inputs(encoder, record))
    sides = table["query bias"] + table["query mean"]
    np.testing.assert_allclose(sides, leads.mean(axis=(1, 2)), rtol=1e-3, atol=1e-4)


def test_sink_tables_have_the_attention_to_the_first_token_with_and_without_a_dimension(
    tiny_encoder, source
):
    encoder = tiny_encoder("bert")
    tables = sinks.sink_tables(encoder, source, SEGMENTS)
    assert set(tables) == {"sink_causes", "sink_sides"}
    causes = tables["sink_causes"]
    records = list(source.records())
    n_queries = min(len(record["tokens"]) for record in records) - 1
    inputs = text_inputs(encoder, source)
    leads = [leads_by_hand(encoder, text)[..., :n_queries] for text in inputs]
    expected = sinks.split_leads(np.stack(leads))
    np.testing.assert_allclose(causes[list(expected)], expected, rtol=1e-3, atol=1e-4)
    sums = lenses.lens_sums(encoder, records)
    np.testing.assert_allclose(causes["cls"], sums.mean("attention_cls").mean(axis=1), rtol=1e-5)
    components = sinks.layer_components(encoder, inputs)
    with sinks.set_dimensions_to_means(encoder, components, 0):
        without = lenses.lens_sums(encoder, records).mean("attention_cls").mean(axis=1)
    np.testing.assert_allclose(causes["cls_without_largest"], without, rtol=1e-5)
    assert (causes["cls_without_largest"] != causes["cls"]).any()
    assert causes["dimension"].to_list() == [layer.dimensions[0] for layer in components]


@pytest.mark.parametrize(
    ("family", "names"), [("mpnet", {"sink_causes"}), ("albert", set()), ("roberta", None)]
)
def test_sink_tables_have_what_the_model_supports(tiny_encoder, family, names):
    encoder = tiny_encoder(family)
    source = extract(encoder, many_segments(SEGMENTS), max_tokens=60, stream=True)
    tables = sinks.sink_tables(encoder, source, 3)
    assert set(tables) == ({"sink_causes", "sink_sides"} if names is None else names)


def test_sink_tables_of_a_decoder_have_the_attention_to_its_first_token(tiny_encoder):
    encoder = tiny_encoder("gpt2")
    source = extract(encoder, many_segments(SEGMENTS), max_tokens=60, stream=True)
    causes = sinks.sink_tables(encoder, source, SEGMENTS)["sink_causes"]
    maps = [forward(encoder, [inputs])[0] for inputs in text_inputs(encoder, source)]
    to_first = [[layer[0, ..., 0].mean().item() for layer in layers] for layers in maps]
    np.testing.assert_allclose(causes["first"], np.mean(to_first, axis=0), rtol=1e-4)
    assert (causes["first_without_largest"] != causes["first"]).any()
