"""The probes of section 5: by hand, against slow references, and at their optimum."""

import os
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from toy_corpora import random_heads

from helpers.analysis import distance_probe, probes, structural_probe, table3
from helpers.analysis.distance_probe import DistancesWordsProbe, distance_features
from helpers.analysis.paper import UAS_WITHOUT_PUNCTUATION, UUAS
from helpers.analysis.probe_data import (
    PLACES,
    Counts,
    MapBuffer,
    attention_block,
    control_heads,
    prepare,
)
from helpers.analysis.probes import LinearProbe, fit_linear
from helpers.analysis.statistics import Estimate, paired_interval, with_seed_noise
from helpers.analysis.table3 import ATTN, ATTN_GLOVE, COMPARISONS, CONTROL_TASK, UAS
from helpers.analysis.training import Schedule, candidate_scores, predicted_heads
from helpers.errors import InputError
from helpers.store.store import Example

LAYERS, HEADS, WIDTH = 2, 3, 4


def example(index, n, rng, *, split="train", planted=None, relations=None):
    """Random maps; ``planted`` = (layer, head) attends from every word to its gold head."""
    heads = random_heads(rng, n).tolist()
    maps = rng.random((LAYERS, HEADS, n + 2, n + 2))
    maps /= maps.sum(-1, keepdims=True)
    if planted is not None:
        target = np.array([h if h else 0 for h in heads])  # the root attends to [CLS]
        rows = np.full((n, n + 2), 0.05 / (n + 2))
        rows[np.arange(n), target] += 0.95
        maps[planted][1:-1] = rows
    record = {
        "words": [f"w{i}" for i in range(n)],
        "heads": heads,
        "relations": relations or ["dep"] * n,
        "split": split,
    }
    return Example(index, maps.astype(np.float16), record)


def vectors(words):
    drawn = [np.random.default_rng(list(word.encode())).standard_normal(WIDTH) for word in words]
    return np.array(drawn, np.float32).reshape(-1, WIDTH)


def examples(count, *, planted=None, seed=0):
    rng = np.random.default_rng(seed)
    for i in range(count):
        split = "dev" if i % 4 == 0 else "train"
        yield example(i, int(rng.integers(3, 12)), rng, split=split, planted=planted)


def corpus(count=60, *, planted=None, seed=0, vectors=vectors):
    return prepare(examples(count, planted=planted, seed=seed), vectors)


def randomised(model, seed=0):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model


MODELS = {
    "Attn": LinearProbe,
    "Attn + GloVe": lambda data: LinearProbe(data, with_words=True),
    "Distances + GloVe": lambda data: DistancesWordsProbe(WIDTH, hidden=5),
}


# the layout


def test_block_holds_both_directions_and_the_special_places():
    one = example(0, 3, np.random.default_rng(0))
    block = attention_block(one)
    flat = one.attention.reshape(LAYERS * HEADS, 5, 5)
    heads = LAYERS * HEADS
    assert block.shape == (3, 3 + PLACES, 2 * heads)
    positions = [0, 4, 1, 2, 3]  # of the places: both special ones, then the words
    for dependent in range(3):
        for place, position in enumerate(positions):
            to_dependent = flat[:, position, 1 + dependent]
            to_candidate = flat[:, 1 + dependent, position]
            np.testing.assert_array_equal(block[dependent, place, :heads], to_dependent)
            np.testing.assert_array_equal(block[dependent, place, heads:], to_candidate)


def test_two_special_tokens_before_and_none_after():
    one = example(0, 3, np.random.default_rng(0))
    block = attention_block(Example(0, one.attention, one.record, offset=2))
    flat = one.attention.reshape(LAYERS * HEADS, 5, 5).astype(np.float32)
    heads = LAYERS * HEADS
    np.testing.assert_allclose(block[1, 0, :heads], flat[:, :2, 3].mean(1), atol=1e-3)
    np.testing.assert_allclose(block[1, 0, heads:], flat[:, 3, :2].sum(1), atol=1e-3)
    assert not block[:, 1].any()


def test_buffer_on_disk_returns_what_it_was_given(monkeypatch):
    rng = np.random.default_rng(0)
    blocks = [rng.random((n, 2, 3)).astype(np.float16) for n in (4, 2, 5, 1)]
    monkeypatch.setattr("helpers.analysis.probe_data.MEMORY_BUDGET", blocks[0].nbytes)
    buffer = MapBuffer()
    for block in blocks:
        buffer.append(block)
        np.testing.assert_array_equal(buffer[0], blocks[0])
    for index in (3, 1, 2, 0):
        np.testing.assert_array_equal(buffer[index], blocks[index])
    assert os.fstat(buffer._file.fileno()).st_size == sum(block.nbytes for block in blocks[1:])


# scores


@pytest.mark.parametrize("with_words", [False, True])
def test_scores_follow_the_equations(with_words):
    data = corpus(4)
    model = randomised(LinearProbe(data, with_words=with_words))
    batch = data.batch([1])
    special, maps = (own.numpy() for own in data.maps(batch))
    scores = model(data, batch)[0].detach().numpy()
    rows = data.vectors[np.concatenate([data.rows[i] for i in data.splits["train"]])].numpy()
    v = ((data.vectors[batch.rows][0].numpy() - rows.mean(0)) / rows.std(0))[:, : model.width]
    candidate, dependent, root = (own.detach().numpy() for own in model.parameters())
    u_1, w_1 = np.split(candidate, 2)  # a candidate's own row has the directions exchanged
    for j, of_word in enumerate(maps):
        for i, features in enumerate(of_word):
            weights = np.concatenate([w_1, u_1]) @ v[i] + dependent @ np.append(v[j], 1)
            assert scores[j, 1 + i] == pytest.approx(weights @ features, rel=1e-4, abs=1e-4)
        expected = root @ np.append(v[j], 1) @ special[j]
        assert scores[j, 0] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_distance_probe_equals_one_hidden_layer_over_the_joined_input():
    data = corpus(4)
    model = randomised(DistancesWordsProbe(WIDTH, hidden=5))
    batch = data.batch([1])
    scores = model(data, batch)[0].detach().numpy()
    v = data.vectors[batch.rows][0].numpy()
    features = distance_features(len(v)).numpy()
    candidate, dependent, distance, output = (
        parameter.detach().numpy()
        for parameter in (model.candidate, model.dependent, model.distance, model.output)
    )
    hidden_weight = np.concatenate([candidate, dependent[:-1], distance])
    for j in range(len(v)):
        for c in range(len(v) + 1):
            head = v[c - 1] if c else np.zeros(WIDTH)
            joined = np.concatenate([head, v[j], features[j, c]])
            hidden = np.tanh(joined @ hidden_weight + dependent[-1])
            assert scores[j, c] == pytest.approx(output @ hidden, abs=1e-4)


def test_distance_features_by_hand():
    features = distance_features(4)
    expected = {  # ahead, behind, -2, -1, 0, +1, +2, ROOT
        (0, 0): [0, 0, 0, 0, 0, 0, 0, 1],
        (0, 1): [0, 0, 0, 0, 1, 0, 0, 0],
        (0, 2): [0.25, 0, 0, 0, 0, 1, 0, 0],
        (0, 4): [0.75, 0, 0, 0, 0, 0, 0, 0],
        (3, 3): [0, 0.25, 0, 1, 0, 0, 0, 0],
        (3, 2): [0, 0.5, 1, 0, 0, 0, 0, 0],
    }
    for pair, values in expected.items():
        assert features[pair].tolist() == values


def test_units_by_hand():
    data = corpus(8)
    deviations, specials = [], []
    for index in data.splits["train"]:
        special, maps = data.maps(data.batch([index]))
        specials.append(special.numpy())
        for j, block in enumerate(maps.numpy()):
            others = np.delete(block, j, axis=0)
            deviations.append((others - others.mean(0)) ** 2)
    words = np.sqrt(np.concatenate(deviations).mean(0))
    np.testing.assert_allclose(data.units[0], words, rtol=1e-5)
    root = np.sqrt(np.square(np.concatenate(specials)).mean(0))
    np.testing.assert_allclose(data.units[1], root, rtol=1e-5)


# the optimum


def penalty(probe, l2):
    parts = zip(probe.parameters(), probe.units, strict=True)
    return l2 / 2 * sum((own * unit).square().sum() for own, unit in parts)


def penalised(data, probe, l2):
    """The loss of a probe on train as the equations have it: one sentence after the other."""
    lost, words = 0, 0
    for index in data.splits["train"]:
        scores = candidate_scores(probe, data, data.batch([index]))[0].double()
        gold = torch.from_numpy(data.parses[index].heads)
        lost = lost - scores.log_softmax(-1)[torch.arange(len(gold)), gold].sum()
        words += len(gold)
    return lost / words + penalty(probe, l2)


@pytest.mark.parametrize("with_words", [False, True])
def test_a_fit_is_at_the_one_optimum(with_words, monkeypatch):
    """The loss is convex: it has no slope at the optimum and nowhere else."""
    monkeypatch.setattr(probes, "EXACTLY", 1e-9)
    data, l2 = corpus(30), 0.02
    fit = fit_linear(data, data.splits["train"], with_words=with_words, l2=l2)
    value = penalised(data, fit.probe, l2)
    value.backward()
    parts = zip(fit.probe.parameters(), fit.probe.units, strict=True)
    steepest = torch.cat([(own.grad / unit).flatten() for own, unit in parts]).abs().max().item()
    assert steepest == pytest.approx(fit.gradient, rel=0.2, abs=1e-5)
    assert steepest < 1e-3
    assert value.item() == pytest.approx(fit.loss + penalty(fit.probe, l2).item(), abs=1e-5)


def test_the_penalty_is_the_best_on_the_slice_and_the_fit_is_to_all(monkeypatch):
    data = corpus(60, planted=(0, 1))
    train_on = data.splits["train"]
    chosen = fit_linear(data, train_on, with_words=True)
    again = fit_linear(data, train_on, with_words=True, l2=chosen.l2)
    assert chosen.passes > again.passes
    assert chosen.loss == pytest.approx(again.loss, abs=1e-3)
    monkeypatch.setattr(probes, "L2", (1e6, chosen.l2))
    assert fit_linear(data, train_on, with_words=True).l2 == chosen.l2


@pytest.mark.parametrize("planted", [(0, 1), (1, 2)])
def test_probe_finds_a_planted_head(planted):
    data = corpus(80, planted=planted)
    (result,) = table3.linear_results(data, ATTN)
    assert result.counts[UAS].by_seed[0] > 98
    table = table3.head_weights(result.fits[UAS].probe.dependent.detach()[:, -1].numpy(), data)
    layer, head = planted
    assert (table["layer"][0], table["head"][0]) == (layer + 1, head + 1)
    assert table["u_gain"][0] > 10 * table["u_gain"][1:].abs().max()


@pytest.mark.parametrize("fit", ["Attn", "Attn + GloVe", "Distances + GloVe"])
def test_threads_and_repetition_change_no_parameter(fit):
    data = corpus(24)
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        if fit == "Distances + GloVe":
            found.append(table3.distances_result(data, 3).counts[UAS].right)
        else:
            found.append(
                fit_linear(data, data.splits["train"], with_words="GloVe" in fit).probe.dependent
            )
    assert all((other == found[0]).all() for other in found[1:])


def test_heads_of_the_control_task_by_hand():
    # ROOT, the first word, the last; a word that would be its own head goes to ROOT
    assert control_heads(np.array([0, 1, 2, 1, 2])).tolist() == [0, 1, 5, 1, 0]
    assert control_heads(np.array([1, 2])).tolist() == [0, 0]


def test_words_learn_the_control_task_and_attention_does_not():
    data = corpus(120)
    (attention,) = table3.linear_results(data, ATTN)
    words = table3.distances_result(data, 0, control_task=True)
    chance, learned = (own.counts[CONTROL_TASK].by_seed[0] for own in (attention, words))
    assert learned > chance + 20


def test_differences_are_paired_over_articles():
    rng = np.random.default_rng(0)
    total = rng.integers(5, 30, 60)
    easy = rng.random(60) * 0.6  # some sentences are easy for every probe
    articles = np.repeat(list("abcdefghijkl"), 5)
    results = {}
    for lead, name in enumerate(dict.fromkeys(sum(COMPARISONS, ()))):
        right = np.stack([rng.binomial(total, easy + 0.05 * lead) for _ in range(2)])
        counts = {
            UAS_WITHOUT_PUNCTUATION: Counts(right, total),
            table3.UNDIRECTED: Counts(total[None], total),
        }
        counts = {UUAS: Counts(right, total)} if name == table3.STRUCTURAL else counts
        results[name] = table3.ProbeResult(name, counts, 9, articles)
    table = table3.difference_table(results).set_index(["probe", "other"])
    assert list(table.index) == list(COMPARISONS)
    one, other = (results[name].counts[UAS_WITHOUT_PUNCTUATION] for name in (ATTN_GLOVE, ATTN))
    row = table.loc[ATTN_GLOVE, ATTN]
    expected = one.by_seed.mean() - other.by_seed.mean()
    assert row["difference"] == pytest.approx(expected)

    def by_article(values):
        return values.reshape(12, 5).sum(axis=1)

    found = results[table3.STRUCTURAL].counts[UUAS].by_seed.mean()  # less all of the other's edges
    assert table.loc[(table3.STRUCTURAL, ATTN_GLOVE), "difference"] == pytest.approx(found - 100)
    sides = [(by_article(side.right.mean(0)), by_article(total)) for side in (one, other)]
    low, high = paired_interval(*sides)
    over_articles = Estimate(expected, 100 * low[0], 100 * high[0])
    interval = with_seed_noise(over_articles, one.by_seed, other.by_seed)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((interval.low, interval.high))
    assert interval.low < over_articles.low


# scores and tables


def hand_made():
    rng = np.random.default_rng(0)

    def sentence(index, heads, relations, split):
        one = example(index, len(heads), rng, split=split, relations=relations)
        return replace(one, record={**one.record, "heads": heads})

    return prepare(
        [
            sentence(0, [2, 0], ["dep", "root"], "train"),
            sentence(1, [2, 0, 2, 2], ["nsubj", "root", "obj", "punct"], "dev"),
            sentence(2, [2, 3, 0], ["det", "nn", "root"], "dev"),
        ]
    )


def test_right_branching_by_hand():
    result = table3.right_branching(hand_made())
    # next word: 2 3 4 ROOT against 2 0 2 2 (one right); 2 3 ROOT against 2 3 0 (three)
    assert result.counts[UAS].right.tolist() == [[1, 3]]
    assert result.counts[UAS].total.tolist() == [4, 3]
    assert result.counts[UAS_WITHOUT_PUNCTUATION].total.tolist() == [3, 3]
    # Edges: both of the first, one of them by its other end, without that to punctuation.
    edges = result.counts[table3.UNDIRECTED]
    assert (edges.right.tolist(), edges.total.tolist()) == ([[2, 2]], [2, 2])
    row, compared, _ = (row for _, row in table3.probe_table([result]).iterrows())
    assert row["value"] == pytest.approx(100 * 4 / 7)
    assert compared["value"] == pytest.approx(100 * 4 / 6)
    assert (compared["probe"], compared["paper_value"]) == ("Right-branching", 26)
    assert np.isnan(row["paper_value"])  # the paper leaves punctuation out
    assert (row["n_train"], row["n_dev"]) == (0, 2)


@pytest.mark.parametrize("kind", MODELS)
def test_scores_are_those_of_the_likeliest_candidates_in_the_order_asked_for(kind):
    data = corpus(20)
    model = randomised(MODELS[kind](data))
    indices = [7, 2, 15, 0]
    parses = [data.parses[index] for index in indices]
    for parse in parses:
        parse.punctuation[::3] = True
    heads = predicted_heads(model, data, indices)
    for index, found in zip(indices, heads, strict=True):
        best = candidate_scores(model, data, data.batch([index]))[0].argmax(-1).numpy()
        np.testing.assert_array_equal(found, best)
    counts = table3.attachment(parses, heads) | table3.attachment(parses, heads, control_task=True)
    for place, (parse, found) in enumerate(zip(parses, heads, strict=True)):
        spoken = ~parse.punctuation
        expected = {
            UAS: ((found == parse.heads).sum(), len(parse)),
            UAS_WITHOUT_PUNCTUATION: (((found == parse.heads) & spoken).sum(), spoken.sum()),
            CONTROL_TASK: (((found == parse.control) & spoken).sum(), spoken.sum()),
        }
        for metric, (right, total) in expected.items():
            assert counts[metric].right[0, place] == right
            assert counts[metric].total[place] == total


def test_contrast_by_hand():
    data = hand_made()
    expected, words = np.zeros(data.features), 0
    for index in data.splits["dev"]:
        block = data.maps(data.batch([index]))[1].numpy()
        heads = data.parses[index].heads
        for j, head in enumerate(heads):
            others = [i for i in range(len(heads)) if i not in (j, head - 1)]
            if head and others:
                mean = np.mean([block[j, i] for i in others], axis=0)
                expected += block[j, head - 1] - mean
                words += 1
    np.testing.assert_allclose(table3.attention_contrast(data), expected / words, atol=1e-6)


# errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"split": "test"}, "example 0: split 'test', not train or dev"),
        ({"heads": [1, 9, 0]}, "example 0: expected 3 heads, between 0 and the 3 words"),
        ({"heads": [0]}, "example 0: expected 3 heads, between 0 and the 3 words"),
        ({"heads": None}, "example 0: no dependency parse"),
        ({}, "no dev sentences"),
    ],
)
def test_bad_records(change, message):
    one = example(0, 3, np.random.default_rng(0))
    record = {name: own for name, own in (one.record | change).items() if own is not None}
    with pytest.raises(InputError, match=message):
        prepare([replace(one, record=record)])
    with pytest.raises(InputError, match="no train sentences"):
        prepare([])


# the whole table


def test_table3_has_every_row(monkeypatch):
    monkeypatch.setattr(distance_probe, "SCHEDULE", Schedule(epochs=1, min_updates=1))
    monkeypatch.setattr(structural_probe, "SCHEDULE", Schedule(epochs=1, min_updates=1))

    def store(seed):
        for one in examples(24, seed=seed):
            hidden = np.random.default_rng(one.index).standard_normal((2, len(one), WIDTH))
            yield replace(one, hidden=hidden.astype(np.float16))

    stores, words = [list(store(seed)) for seed in range(3)], SimpleNamespace(vectors=vectors)
    tables = table3.table3(stores[0], stores[1:], words, seeds=2)
    scores = tables["probes"].pivot(index="probe", columns="metric", values="value")
    with_control = {"Distances + GloVe", "Random-init Attn + GloVe", "Attn", "Attn + GloVe"}
    assert set(scores.index) == with_control | {"Structural probe", "Right-branching"}
    assert set(scores.index[scores["selectivity"].notna()]) == with_control
    difference = scores[UAS_WITHOUT_PUNCTUATION] - scores["control task"]
    np.testing.assert_allclose(difference.dropna(), scores["selectivity"].dropna())
    curves = tables["learning_curves"].query("metric == @UAS")
    assert set(curves["probe"]) == {"Attn", "Attn + GloVe"}
    assert set(curves.groupby("probe")["n_train"].agg(tuple)) == {(2, 4, 9, 18)}
    optima = tables["probe_fits"].query("task == @UAS and probe == 'Attn'")
    assert (optima["l2"] * optima["n_train"]).tolist() == pytest.approx(
        18 * optima["l2"].to_numpy()[-1:].repeat(4), rel=0.2
    )
    for name in ("probe_differences", "control_probe_differences"):
        pairs = tables[name][["probe", "other"]].itertuples(index=False, name=None)
        assert tuple(pairs) == COMPARISONS
    fits = tables["probe_fits"].groupby(["probe", "task"]).size()
    assert fits["Attn", UAS] == fits["Attn + GloVe", UAS] == 4
    assert fits["Random-init Attn + GloVe", UAS] == 2
    assert fits["Random-init Attn + GloVe", CONTROL_TASK] == 1
    assert ("Random-init Attn", CONTROL_TASK) not in fits
    assert len(tables["probe_heads"]) == LAYERS * HEADS
    assert tables["structural_layers"]["chosen"].sum() == 1
