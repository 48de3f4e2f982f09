"""Cut edges against attention written out by hand, in every family, and what they move."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine
from store_tools import many_segments
from tiny_models import FAMILIES
from toy_corpora import SENTENCES, corpus_of, sentence_of

from helpers.analysis.structural_probe import fit_layers, prepare_states
from helpers.errors import InputError, ModelError
from helpers.model.encoder import load
from helpers.model.forward import model_inputs, padded
from helpers.model.gradients import objective
from helpers.model.sites import replaced, sites
from helpers.store.extract import extract, stream
from helpers.studies.attention_moves import edges, plots
from helpers.studies.attention_moves.lenses import spread
from helpers.studies.edge_cuts import FIRST, WAYS, Cut, changes_of, cut_edges, cuts_of

LAYERS = 3


def by_hand(weights, chosen, way):
    """A map [query, key], one row and one key after the other."""
    found = np.zeros_like(weights)
    for i, row in enumerate(weights):
        cut = sum(row[j] for j in range(len(row)) if chosen[i, j])
        others = sum(row[j] for j in range(len(row)) if not chosen[i, j])
        for j, weight in enumerate(row):
            if way == "dropped":
                found[i, j] = 0 if chosen[i, j] else weight
            elif way == "given to others":
                found[i, j] = 0 if chosen[i, j] else weight * (cut + others) / max(others, 1e-30)
            elif chosen[i, j]:
                found[i, j] = weight
            else:
                found[i, j] = weight * max(0, 1 - cut / max(others, 1e-30))
    return found


@pytest.mark.parametrize("family", [*FAMILIES, "llama"])
def test_weights_meet_the_values_as_written_out_by_hand(family, tiny_encoder, request):
    """Maps as eager attention returns them, changed by hand, times the values, layer by layer."""
    encoder = tiny_encoder(family)
    ids = [encoder.encode_words(t.split()).ids for t in ("the cat sat on the mat , .", "rainy .")]
    batch = padded(encoder, [{"input_ids": i, "token_type_ids": [0] * len(i)} for i in ids])
    model, keys = encoder.model.base_model, {ids[0][0], ids[0][-1]}
    layers, real = sites(model), batch["attention_mask"].bool()

    @torch.no_grad()
    def run():
        return model(**batch, output_attentions=True)

    whole = run()
    values, made = [], {}
    for site in {id(site.values): site for site in layers}.values():
        hook = site.values.register_forward_hook(lambda _module, _args, out: values.append(out))
        request.addfinalizer(hook.remove)

    def outputs(layer, found):
        if layer not in made:
            return found
        value = layers[layer].value_vectors(values[-1])
        return torch.einsum("bhqk,bkhw->bqhw", made[layer].to(value), value)

    for cut, way in product((Cut((1,)), Cut((0, 2)), Cut((1, 2), queries=FIRST)), WAYS):
        made.clear()
        for layer in cut.layers:  # where the next one looks depends on the last one's cut
            with replaced(model, layers, outputs):
                maps = run().attentions[layer].double().numpy()
            for tokens, own in zip(batch["input_ids"].tolist(), maps, strict=True):
                chosen = np.array([[token in keys for token in tokens]] * len(tokens))
                chosen[1 if cut.queries == FIRST else len(tokens) :] = False
                own[:] = [by_hand(head, chosen, way) for head in own]
            made[layer] = torch.from_numpy(maps)
        with replaced(model, layers, outputs):
            expected = run().last_hidden_state[real]
        with cut_edges(model, cut, keys, way) as before:
            found = run().last_hidden_state[real]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        moved = not torch.allclose(expected, whole.last_hidden_state[real], atol=1e-4)
        assert moved or cut.queries == FIRST  # of a decoder, which sees nothing else
        torch.testing.assert_close(before[cut.layers[0]], whole.attentions[cut.layers[0]])
    with cut_edges(model, Cut((0, 1, 2)), {10**6}, "taken from others"):
        assert torch.equal(run().last_hidden_state, whole.last_hidden_state)  # to the last bit


def test_movements_are_those_between_two_passes(tiny_encoder):
    encoder = tiny_encoder("bert")
    records = list(stream(encoder, many_segments(7), max_tokens=60).records())
    plain, more = cuts_of(LAYERS, (1, 2))
    cuts = plain + more
    found = edges.movements(encoder, cuts, records)
    assert found["values"].shape == (6, 3, 3, 7)
    batch = padded(encoder, [model_inputs(encoder, records[3])])

    @torch.no_grad()
    def states():
        output = encoder.model.base_model(**batch, output_hidden_states=True)
        return [layer[0].double().numpy() for layer in output.hidden_states]

    before = states()
    for place, way in ((1, "dropped"), (3, "taken from others"), (5, "given to others")):
        with cut_edges(encoder.model.base_model, cuts[place], encoder.special_ids, way):
            after = states()
        one, other = (own[cuts[place].layers[-1] + 1] for own in (before, after))
        relative = np.linalg.norm(other - one, axis=1) / np.linalg.norm(one, axis=1)
        one, other = before[-1], after[-1]
        tokens = [cosine(*pair) for pair in zip(one, other, strict=True)]
        expected = relative.mean(), cosine(one.mean(0), other.mean(0)), np.mean(tokens)
        got = found["values"][place, WAYS.index(way), :, 3]
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-7)


def test_tables_are_sums_over_what_is_cut(tiny_encoder):
    encoder = tiny_encoder("bert")
    source = stream(encoder, many_segments(12), max_tokens=60)
    words = [sentence_of(w, split) for split in ("train", "dev") for w in SENTENCES if len(w) > 2]
    treebank = extract(encoder, corpus_of(words), level="word", max_tokens=60, hidden=True)
    both = {"own": encoder, "drawn": load(encoder.name, random_init=0, device="cpu")}
    how = {"count": 9, "seed": 0}
    tables = edges.edge_tables(both, source, treebank, (1, 2), **how)
    table = tables["edges"].set_index(["model", "layers", "keys", "queries", "change", "measure"])
    (plain, more), records = cuts_of(LAYERS, (1, 2)), spread(source, 9)
    moved = edges.movements(encoder, plain + more, records)["values"].mean(axis=-1)
    row = table.loc[("own", "2-3", "special", "all", WAYS[2], "token vectors")]
    assert row["value"] == pytest.approx(moved[3, 2, 2])
    assert row["ci_low"] < row["value"] < row["ci_high"] and 0 < row["share"] < 1
    ratios = tables["edge_ratios"].set_index(["model", "ways", "measure"])
    own = ratios.loc[("own", "dropped / taken from others", "token vectors")]
    assert own["ratio"] == pytest.approx(moved[3, 0, 2] / moved[3, 2, 2]) and np.isnan(own["lead"])
    drawn = ratios.loc[("drawn", "dropped / taken from others", "token vectors")]
    some = edges.movements(encoder, plain, records[:: edges.EVERY])["values"].mean(axis=-1)
    # These segments stand in other batches here, which rounds float32 otherwise: the lead differed
    # by 0.6e-6 with AVX-512, and by 1.8e-6 with AVX2.
    lead = some[3, 0, 2] / some[3, 2, 2] - drawn["ratio"]
    assert drawn["lead"] == pytest.approx(lead, rel=0, abs=5e-6)
    assert "layers 2-3" in edges.in_words(tables, (1, 2))
    probe = table.xs("structural probe", level="measure")["value"]
    layer = int(fit_layers(prepare_states(treebank))[1]["chosen"].argmax())
    assert (probe[probe.index.get_level_values("layers") == "3"] == 0).all() == (layer < 3)
    panels = [axes for axes in plots.fig15_edges(tables["edges"]).axes if axes.lines]
    assert [len(axes.lines) for axes in panels] == [3] * 9
    np.testing.assert_allclose(panels[2].lines[0].get_ydata(), moved[:3, 0, 2])


def test_the_loss_rises_by_what_a_full_pass_says(tiny_encoder):
    for family in ("bert", "t5"):  # masked words, and paragraphs that belong together
        encoder = tiny_encoder(family)
        records = list(stream(encoder, many_segments(19), max_tokens=60).records())
        found = edges.losses(encoder, [Cut((1,))], records, 3)["values"]
        change = changes_of(encoder, [Cut((1,))])[2]
        losses = []
        for own in (records[:16], records[16:]):  # in batches of 16
            before = objective(encoder, own, np.random.default_rng(3))[0]
            with change.context(encoder.model):
                after = objective(encoder, own, np.random.default_rng(3))[0]
            losses.append(after - before)
        expected = torch.cat(losses).detach().numpy()
        np.testing.assert_allclose(found[0, 2, 0], expected, rtol=1e-3, atol=1e-5)
        assert np.abs(expected).max() > 1e-3


def test_groups_and_models_that_cannot_be_cut(tiny_encoder):
    names = [cut.name for cut in cuts_of(12, (1, 2, 3, 4, 9, 10))[0][12:]]
    assert names == ["2-5", "10-11", "2-5, 10-11"]
    assert cuts_of(2, ()) == ([Cut((0,)), Cut((1,))], [])
    with pytest.raises(InputError, match="no special tokens"):
        changes_of(tiny_encoder("gpt2"), [Cut((0,))])
    model = tiny_encoder("bert").model
    with pytest.raises(ModelError, match="in layers 2"), cut_edges(model, Cut((1,)), {2}, WAYS[0]):
        pass  # no softmax is called
