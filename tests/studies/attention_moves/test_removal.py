"""Heads taken out: against hooks of one's own on the output projection and full passes."""

import numpy as np
import pytest
import torch
from store_tools import many_segments
from toy_corpora import SENTENCES, corpus_of, sentence_of

from helpers.analysis.probe_data import prepare
from helpers.analysis.probe_scores import ATTN, UAS
from helpers.analysis.structural_probe import prepare_states, undirected_attachment
from helpers.analysis.table3 import fit_probe, score
from helpers.model.encoder import load
from helpers.model.forward import forward, model_inputs, padded
from helpers.model.gradients import objective
from helpers.model.sites import sites
from helpers.store.extract import Stream, extract
from helpers.studies.attention_moves import removal
from helpers.studies.attention_moves.probe_reading import Probes, train_probes
from helpers.studies.head_mask import head_output, mean_outputs

LAYERS, HEADS = 3, 4


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path / "cache"))


def without(encoder, layer, head, vector):
    """A hook of the test's own: what the head puts into the output projection is replaced."""
    site = sites(encoder.model)[layer]

    def replaced(_module, args):
        width = args[0].shape[-1] // HEADS
        outputs = args[0].clone()
        outputs[..., head * width : (head + 1) * width] = vector
        return (outputs, *args[1:])

    return site.output.register_forward_pre_hook(replaced)


FAMILIES = ("bert", "mpnet", "distilbert", "modernbert", "gpt2", "t5", "deberta")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_put_out_is_one_hooked_away(tiny_encoder, family):
    encoder = tiny_encoder(family)
    inputs = [model_inputs(encoder, {"words": ["the", "cat", "sat"]})]
    vector = torch.arange(sites(encoder.model)[0].width) / 10
    for output in (torch.zeros_like(vector), vector):
        with head_output(encoder.model, 1, 2, output):
            _, found = forward(encoder, inputs, hidden=True)
        hook = without(encoder, 1, 2, output)
        _, expected = forward(encoder, inputs, hidden=True)
        hook.remove()
        assert torch.equal(found[-1], expected[-1])
    _, intact = forward(encoder, inputs, hidden=True)
    assert not torch.equal(intact[-1], expected[-1])


def test_mean_outputs_are_means_over_real_tokens(tiny_encoder):
    encoder = tiny_encoder("bert")
    texts = [["the", "cat"], ["the", "dog", "watched", "it", "."]]
    inputs = [model_inputs(encoder, {"words": words}) for words in texts]
    found = mean_outputs(encoder, inputs)
    seen, site = [], sites(encoder.model)[1]
    hook = site.output.register_forward_pre_hook(lambda _m, args: seen.append(args[0][0]))
    for item in inputs:
        forward(encoder, [item])
    hook.remove()
    expected = torch.cat(seen).mean(0).view(HEADS, -1)
    torch.testing.assert_close(found[1], expected, rtol=1e-4, atol=1e-6)


def treebank(encoder):
    sentences = [sentence_of(w, split) for split in ("train", "dev") for w in SENTENCES]
    return extract(encoder, corpus_of(sentences), level="word", hidden=True, max_tokens=60)


@pytest.mark.parametrize("family", ["bert", "gpt2", "roberta"])
def test_probes_find_in_a_fresh_pass_what_they_find_in_the_store(tiny_encoder, family, tmp_path):
    encoder = tiny_encoder(family)
    store = treebank(encoder)
    probes = train_probes(store)
    dev = [record for record in store.records() if record["split"] == "dev"]
    means = torch.zeros(LAYERS, HEADS, sites(encoder.model)[0].width)
    found = removal.found_without_heads(encoder, dev, probes, means)
    data = prepare(store)
    assert found.right[0, 1].sum() == fit_probe(data, ATTN, [0]).counts[UAS].right.sum()
    assert found.total[1].sum() == sum(len(record["words"]) for record in dev)
    states = prepare_states(store)
    edges = undirected_attachment(states, probes.structural, probes.layer, states.splits["dev"])
    assert found.right[0, 0].sum() == edges.right.sum()
    assert found.total[0].sum() == edges.total.sum()


def test_what_is_lost_without_a_head_is_what_a_full_pass_loses(tiny_encoder, tmp_path, monkeypatch):
    """Every head and kind, without the memory of layers, by the probes' own arithmetic."""
    encoder = tiny_encoder("bert")
    store = treebank(encoder)
    trained = train_probes(store)
    probes = Probes(trained.structural, 2, trained.scale, trained.words, trained.root)
    dev = [record for record in store.records() if record["split"] == "dev"]
    inputs = [model_inputs(encoder, record) for record in dev]
    means = mean_outputs(encoder, inputs)
    found = removal.found_without_heads(encoder, dev, probes, means)
    assert found.layers == 2 and found.right.shape[0] == 1 + 2 * 2 * HEADS
    changes = [(kind, layer, head) for kind in removal.KINDS for layer in range(2)
               for head in range(HEADS)]  # fmt: skip
    attn = fit_probe(prepare(store), ATTN, [0]).model
    for number, (kind, layer, head) in enumerate(changes, start=1):
        vector = means[layer, head] if kind == "mean" else 0.0
        hook = without(encoder, layer, head, vector)
        monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path / f"{number}"))
        changed = treebank(encoder)
        hook.remove()
        data = prepare(changed)
        right = score(attn, data, data.splits["dev"])[UAS].right
        assert found.right[number, 1].sum() == right.sum(), (kind, layer, head)


@pytest.mark.parametrize("family", ["bert", "gpt2", "sentence"])
def test_losses_are_those_of_the_objective(family, tiny_encoder, tmp_path):
    encoder = tiny_encoder("bert" if family == "sentence" else family)
    if family == "sentence":  # the same without its head: the objective is contrastive
        encoder.model.base_model.save_pretrained(tmp_path / "sentence")
        encoder.tokenizer.save_pretrained(tmp_path / "sentence")
        encoder = load(str(tmp_path / "sentence"), device="cpu")
        assert encoder.objective == "contrastive"
    source = Stream.open(encoder, many_segments(6), max_tokens=60)
    records = list(source.records())
    found = removal.objective_without_heads(encoder, records, seed=3)
    assert found.shape == (1 + 2 * LAYERS * HEADS, 6, 2)
    loss, *_ = objective(encoder, records, np.random.default_rng(3))
    assert found[0, :, 0].sum() == pytest.approx(loss.item(), rel=1e-4)
    batch, start = padded(encoder, [model_inputs(encoder, records[1])]), records[1]["second"]
    with torch.no_grad():
        states = encoder.model.base_model(**batch).last_hidden_state[0]
    vectors = states[:start].mean(0), states[start:].mean(0)
    expected = torch.cosine_similarity(*vectors, dim=0).item()
    assert found[0, 1, 1] == pytest.approx(expected, abs=1e-5)
    place = 1 + 2 * HEADS + 3  # zero, layer 3, head 4
    hook = without(encoder, 2, 3, 0.0)
    loss, *_ = objective(encoder, records, np.random.default_rng(3))
    hook.remove()
    assert found[place, :, 0].sum() == pytest.approx(loss.item(), rel=1e-4)
    assert np.abs(found[place] - found[0]).max() > 1e-5
