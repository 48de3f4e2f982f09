"""The cause of a sink and its transplant: planted sinks, and passes that are changed by hand."""

import numpy as np
import pytest
import torch
import transformers as hf
from store_tools import many_segments, token_records
from tiny_models import BERT_SPECIALS, save, wordpiece

from beyond.papers.sinks import transplant
from beyond.papers.sinks.transplant import (
    ABLATED,
    COPIED,
    INTACT,
    MOVED,
    OTHERS,
    RANDOM,
    SECOND,
    SINK,
    TARGET,
    TARGET_TOKEN,
    WHOLE,
)
from helpers.errors import InputError, ModelError
from helpers.model.forward import model_inputs, padded
from helpers.model.loading import load_model
from helpers.store.extract import extract

SEGMENTS = 6
DIMENSION = 5
WIDTH = 24
HEADS = 4


def plant_sink(*, dimension=None):
    """Make a BERT whose queries look for one dimension, which only [CLS] has; or for none.

    Its layers add nothing to the vectors, which stay the normalised embeddings.  Without a
    dimension, all queries look for the vector of [CLS], all dimensions of which differ a little
    from those of other tokens.
    """
    tokenizer = hf.BertTokenizer(vocab=wordpiece(BERT_SPECIALS))
    config = hf.BertConfig(
        vocab_size=len(tokenizer), hidden_size=WIDTH, num_hidden_layers=3,
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
        of_cls = words[tokenizer.cls_token_id]
        sought = 0.12 * of_cls
        if dimension is not None:
            words[:, dimension] = 0
            of_cls[dimension] = 12
            sought = 0.2 * torch.eye(WIDTH)[dimension]
        for layer in model.bert.encoder.layer:
            layer.attention.output.dense.weight.zero_()
            layer.output.dense.weight.zero_()
            layer.attention.self.query.weight.zero_()
            layer.attention.self.query.bias.fill_(4)
            layer.attention.self.key.weight[:] = sought
    return model, tokenizer


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Load the models of `plant_sink` by their dimension."""
    encoders = {}
    for dimension in (DIMENSION, None):
        folder = tmp_path_factory.mktemp("planted")
        save(folder, *plant_sink(dimension=dimension))
        encoders[dimension] = load_model(str(folder), device="cpu")
    return encoders


def tables_of(encoder):
    source = extract(encoder, many_segments(SEGMENTS), max_tokens=60, stream=True)
    return transplant.transplant_tables(encoder, source, SEGMENTS, seed=0)


def gains_of(table):
    """Select the gains over all layers, by change and token."""
    return table[table["layer"] == "all"].set_index(["change", "token"])["gain"]


def test_a_planted_dimension_is_found_ablated_and_transplanted(planted):
    tables = tables_of(planted[DIMENSION])
    shares = tables["sink_transplant"]
    assert set(shares["sink"]) == {"first"}
    assert set(shares["dimension"]) == {DIMENSION}
    assert set(shares["before"]) == {1}  # the embeddings write it
    intact = shares.query("change == 'intact' and token == 'sink' and layer == 'all'")
    assert intact["share"].item() > 0.9
    gains = gains_of(shares)
    assert gains[ABLATED, SINK] < -0.9
    assert gains[MOVED, TARGET_TOKEN] > 0.9
    assert gains[MOVED, SINK] < -0.9
    by_layer = shares.set_index(["change", "token", "layer"])["gain"]
    assert by_layer[COPIED, TARGET_TOKEN, "1"] == pytest.approx(0.5, abs=0.02)  # shared by both
    for control in (f"{ABLATED}: {SECOND}", f"{ABLATED}: {RANDOM}", f"{ABLATED}: {OTHERS}"):
        assert abs(gains[control, SINK]) < 0.3
    assert abs(gains[f"{MOVED}: {SECOND}", TARGET_TOKEN]) < 0.1
    (share,) = tables["sink_writers"]["share"].dropna()
    assert share < 0.1


def test_a_sink_of_many_dimensions_is_not_transplanted_by_one(planted):
    shares = tables_of(planted[None])["sink_transplant"]
    intact = shares.query("change == 'intact' and token == 'sink' and layer == 'all'")
    assert intact["share"].item() > 0.5
    gains = gains_of(shares)
    assert gains[ABLATED, SINK] > -0.5
    assert gains[MOVED, TARGET_TOKEN] < 0.1
    assert gains[f"{MOVED}: {WHOLE}", TARGET_TOKEN] > 0.9  # the content makes it, not the position


def changed_by_hand(encoder, record, layer, edit):
    """Run a model whose vectors are edited before a layer: maps of all layers."""
    batch = padded(encoder, [model_inputs(encoder, record)])
    modules = transplant.layer_modules(encoder.model.base_model)
    original = modules[layer].forward

    def forward(states, *args, **options):
        states = states.clone()
        edit(states[0])
        return original(states, *args, **options)

    modules[layer].forward = forward
    try:
        with torch.no_grad():
            output = encoder.model.base_model(**batch, output_attentions=True)
    finally:
        del modules[layer].forward
    return [weights[0].double().numpy() for weights in output.attentions]


@pytest.mark.parametrize("family", ["bert", "llama", "gpt2", "mpnet"])
def test_shares_are_those_of_passes_that_are_changed_by_hand(tiny_encoder, family):
    encoder = tiny_encoder(family)
    tables = tables_of(encoder)
    shares = tables["sink_transplant"]
    first_row = shares.iloc[0]
    assert first_row["sink"] == "first" or family in ("bert", "mpnet")
    dimension = first_row["dimension"]
    before = first_row["before"] - 1

    def move(states):
        value = states[is_sink, dimension].mean()
        states[is_sink, dimension] = states[~is_sink, dimension].mean()
        states[TARGET, dimension] = value

    by_text = []
    for record in token_records(encoder, many_segments(SEGMENTS)):
        tokens = record["tokens"]
        sep = encoder.special_tokens["sep"]
        is_first = np.arange(len(tokens)) == 0
        is_sink = is_first if first_row["sink"] == "first" else np.array(tokens) == sep
        if len(tokens) <= TARGET + 1 or tokens[TARGET] == sep:
            continue
        maps = changed_by_hand(encoder, record, before, move)
        queries = [query for query in range(TARGET + 1, len(tokens)) if not is_sink[query]]
        if queries:
            rows = [np.array(weights)[:, queries] for weights in maps[before:]]
            to_sink = [row[..., is_sink].sum(axis=-1).mean() for row in rows]
            to_target = [row[..., TARGET].mean() for row in rows]
            by_text.append([to_sink, to_target])
    expected = np.mean(by_text, axis=0)
    assert len(by_text) >= 2
    for token, values in zip((SINK, TARGET_TOKEN), expected, strict=True):
        rows = shares[(shares["change"] == MOVED) & (shares["token"] == token)]
        measured = rows.set_index("layer")["share"]
        np.testing.assert_allclose(measured.drop("all"), values, rtol=1e-3, atol=1e-5)
        assert measured["all"] == pytest.approx(values.mean(), rel=1e-3)


def test_gain_is_the_difference_of_shares_over_the_intact_share_of_the_sink(tiny_encoder):
    shares = tables_of(tiny_encoder("bert"))["sink_transplant"]
    by_change = shares.set_index(["change", "token", "layer"])
    intact = by_change.loc[(INTACT, SINK, "all"), "share"]
    difference = (
        by_change.loc[(COPIED, TARGET_TOKEN, "all"), "share"]
        - by_change.loc[(INTACT, TARGET_TOKEN, "all"), "share"]
    )
    assert by_change.loc[(COPIED, TARGET_TOKEN, "all"), "gain"] == pytest.approx(
        difference / intact
    )
    assert (shares.loc[shares["change"] == INTACT, "gain"] == 0).all()


def test_writers_have_the_differences_before_each_layer(tiny_encoder):
    encoder = tiny_encoder("llama")
    writers = tables_of(encoder)["sink_writers"]
    dimension = writers["dimension"].iloc[0]
    differences = []
    for record in token_records(encoder, many_segments(SEGMENTS)):
        if len(record["tokens"]) > TARGET + 1:
            batch = padded(encoder, [model_inputs(encoder, record)])
            with torch.no_grad():
                states = encoder.model.base_model(**batch, output_hidden_states=True).hidden_states
            values = torch.stack(states[:-1])[:, 0, :, dimension].double()
            differences.append(values[:, 0] - values[:, 1:].mean(dim=1))
    np.testing.assert_allclose(
        writers["difference"], torch.stack(differences).mean(dim=0), rtol=1e-3
    )
    sink_layer = writers["sink_layer"].iloc[0]
    assert writers["share"].notna().sum() == sink_layer


def test_choose_layer_before_is_the_first_from_which_on_ablation_takes_half():
    grows_late = np.array([1.0, 1.0, 9.0])
    choose = transplant.choose_layer_before
    assert choose(np.array([0.4, 0.1, 0.0]), 0.4, np.array([9.0, 1.0, 1.0])) == 1
    assert choose(np.array([0.0, 0.4, 0.1]), 0.4, np.array([9.0, 1.0, 1.0])) == 2
    assert choose(np.array([0.1, 0.1, 0.1]), 0.4, grows_late) == 0
    assert choose(np.array([0.4, 0.4, 0.4]), 0.4, grows_late) == 2  # ablation takes nothing
    assert choose(np.array([0.4]), 0.4, np.array([9.0])) == 0


def test_choose_sink_layer_is_the_first_above_a_quarter():
    assert transplant.choose_sink_layer(np.array([0.1, 0.3, 0.4])) == 1
    assert transplant.choose_sink_layer(np.array([0.1, 0.05, 0.2])) == 2


def test_displacements_have_the_length_of_the_change_of_the_dimension():
    states = torch.zeros(TARGET + 3, 4)
    states[0, 1] = 8
    is_sink = torch.arange(TARGET + 3) == 0
    direction = torch.tensor([0.6, 0.0, 0.8, 0.0])
    moved = transplant.displace_sink(states, is_sink, 1, direction)
    torch.testing.assert_close(moved[0], torch.tensor([4.8, 8.0, 6.4, 0.0]))
    assert torch.equal(moved[1:], states[1:])
    moved = transplant.displace_target(states, is_sink, 1, direction)
    torch.testing.assert_close(moved[TARGET], torch.tensor([4.8, 0.0, 6.4, 0.0]))
    assert torch.equal(moved[:TARGET], states[:TARGET])


def test_find_sink_prefers_the_token_that_gets_most(tmp_path):
    model, tokenizer = plant_sink(dimension=DIMENSION)
    words = model.bert.embeddings.word_embeddings.weight
    with torch.no_grad():
        words[tokenizer.cls_token_id, DIMENSION] = 0
        words[tokenizer.sep_token_id, DIMENSION] = 12
    encoder = load_model(str(save(tmp_path, model, tokenizer)), device="cpu")
    shares = tables_of(encoder)["sink_transplant"]
    assert set(shares["sink"]) == {"sep"}
    assert gains_of(shares)[MOVED, TARGET_TOKEN] > 0.5


def test_transplant_tables_refuse_texts_that_are_too_short(tiny_encoder):
    encoder = tiny_encoder("bert")
    source = extract(encoder, many_segments(SEGMENTS), max_tokens=12, stream=True)
    with pytest.raises(InputError, match=f"position {TARGET}"):
        transplant.transplant_tables(encoder, source, SEGMENTS, seed=0)


def test_transplant_tables_refuse_layers_that_share_their_parameters(tiny_encoder):
    encoder = tiny_encoder("albert")
    source = extract(encoder, many_segments(SEGMENTS), max_tokens=60, stream=True)
    with pytest.raises(ModelError, match="one module"):
        transplant.transplant_tables(encoder, source, SEGMENTS, seed=0)


def test_changes_end_with_the_context(tiny_encoder):
    model = tiny_encoder("llama").model.base_model
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        intact = model(ids).last_hidden_state
        with transplant.change_states(model, 1, lambda states: states + 1):
            assert not torch.equal(model(ids).last_hidden_state, intact)
        assert torch.equal(model(ids).last_hidden_state, intact)
