import copy
import os
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from helpers.analysis import probe_data, structural_probe, table3
from helpers.analysis.probe_data import (
    PLACES,
    MapBuffer,
    attention_block,
    control_heads,
    prepare,
)
from helpers.analysis.probe_scores import (
    ATTN,
    ATTN_GLOVE,
    COMPARISONS,
    CONTROL_TASK,
    DISTANCES_GLOVE,
    RANDOM_ATTN,
    RANDOM_ATTN_GLOVE,
    STRUCTURAL,
    UAS,
    UAS_WITHOUT_PUNCTUATION,
    UUAS,
    Counts,
    ProbeResult,
    difference_table,
    pool,
    probe_table,
    seed_table,
    with_selectivity,
)
from helpers.analysis.probes import (
    AttentionProbe,
    AttentionWordsProbe,
    DistancesWordsProbe,
    HiddenLayer,
    attention_contrast,
    distance_features,
    head_weights,
)
from helpers.analysis.statistics import paired_interval
from helpers.analysis.table3 import (
    KINDS,
    candidate_scores,
    choose_setting,
    fit_controls,
    fit_probe,
    loss,
    right_branching,
    score,
    training_sentences,
)
from helpers.analysis.training import Schedule, Setting, one_thread, side_by_side, train
from helpers.errors import InputError, MapError
from helpers.store.store import Example

LAYERS, HEADS, WIDTH = 2, 3, 4


@pytest.fixture(autouse=True, scope="module")
def single_thread():
    with one_thread():
        yield


def random_tree(rng, n):
    root = rng.integers(1, n + 1)
    heads = np.zeros(n, int)
    placed = [root]
    for word in rng.permutation([w for w in range(1, n + 1) if w != root]):
        heads[word - 1] = rng.choice(placed)
        placed.append(word)
    return heads.tolist()


def example(index, n, rng, *, split="train", planted=None, relations=None):
    """Random maps; ``planted`` = (layer, head) attends from every word to its gold head."""
    heads = random_tree(rng, n)
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
    ATTN: lambda data: AttentionProbe(data, [0, 1]),
    ATTN_GLOVE: lambda data: AttentionWordsProbe(data, [0, 1]),
    DISTANCES_GLOVE: lambda data: DistancesWordsProbe(data, [0, 1], hidden=5),
}


# the layout


def test_block_holds_both_directions_and_the_special_places():
    one = example(0, 3, np.random.default_rng(0))
    block = attention_block(one)
    flat = one.attention.reshape(LAYERS * HEADS, 5, 5)
    heads = LAYERS * HEADS
    assert block.shape == (3, 2 * heads, 3 + PLACES)
    for k in range(heads):
        for dependent in range(3):
            for candidate in range(3):
                to_dependent = flat[k, 1 + candidate, 1 + dependent]
                to_candidate = flat[k, 1 + dependent, 1 + candidate]
                assert block[dependent, k, PLACES + candidate] == to_dependent
                assert block[dependent, heads + k, PLACES + candidate] == to_candidate
            for place, special in enumerate((0, 4)):
                assert block[dependent, k, place] == flat[k, special, 1 + dependent]
                assert block[dependent, heads + k, place] == flat[k, 1 + dependent, special]


def test_two_special_tokens_before_and_none_after():
    one = example(0, 3, np.random.default_rng(0))
    block = attention_block(Example(0, one.attention, one.record, offset=2))
    flat = one.attention.reshape(LAYERS * HEADS, 5, 5).astype(np.float32)
    heads = LAYERS * HEADS
    np.testing.assert_allclose(block[1, :heads, 0], flat[:, :2, 3].mean(1), atol=1e-3)
    np.testing.assert_allclose(block[1, heads:, 0], flat[:, 3, :2].sum(1), atol=1e-3)
    assert not block[:, :, 1].any()


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


@pytest.fixture
def trained_for(monkeypatch):
    """Set the schedule of every kind of probe."""

    def change(**schedule):
        for kind, recipe in KINDS.items():
            short = recipe._replace(schedule=replace(recipe.schedule, **schedule))
            monkeypatch.setitem(KINDS, kind, short)

    return change


def test_spilling_to_disk_changes_no_score(monkeypatch, trained_for):
    trained_for(epochs=2, min_updates=1)
    near = fit_probe(corpus(), ATTN_GLOVE, [0])
    monkeypatch.setattr(probe_data, "MEMORY_BUDGET", 1000)
    far = fit_probe(corpus(), ATTN_GLOVE, [0])
    assert torch.equal(near.model.weight, far.model.weight)


# scores


@pytest.mark.parametrize("kind", MODELS)
def test_padding_does_not_matter(kind):
    data = corpus(12)
    model = randomised(MODELS[kind](data))
    indices = sorted(range(12), key=lambda i: len(data.parses[i]))
    together = data.batch(indices)
    scores = candidate_scores(model, together)
    assert len(set(together.lengths.tolist())) > 3
    for row, index in enumerate(indices):
        n = len(data.parses[index])
        alone = candidate_scores(model, data.batch([index]))[:, 0]
        torch.testing.assert_close(scores[:, row, :n, : n + 1], alone, rtol=1e-4, atol=1e-4)
        assert torch.isneginf(scores[:, row, :n, n + 1 :]).all()


@pytest.mark.parametrize("kind", MODELS)
def test_padding_adds_nothing_to_the_gradient(kind):
    data = corpus(6)
    model = randomised(MODELS[kind](data))

    def gradients(batches):
        model.zero_grad()
        for batch in batches:
            loss(model, batch).sum().backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    together = gradients([data.batch(range(6))])
    apart = gradients([data.batch([i]) for i in range(6)])
    for one, other in zip(together, apart, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_attention_scores_follow_the_equation():
    data = corpus(4)
    model = randomised(AttentionProbe(data))
    batch = data.batch([1])
    scores = model(batch)[0, 0].detach().numpy()
    one = attention_block_by_pairs(batch)
    weight = model.coefficients[0].detach().numpy()
    root = (model.root[0] / model.root_scales).detach().numpy()
    n = len(data.parses[1])
    for j in range(n):
        special = batch.special[0, j].numpy()
        assert scores[j, 0] == pytest.approx((root * special).sum(), rel=1e-4, abs=1e-3)
        for i in range(n):
            assert scores[j, 1 + i] == pytest.approx(weight @ one[j, i], rel=1e-4, abs=1e-3)


def test_factorised_scores_equal_the_joined_computation():
    data = corpus(4)
    model = randomised(AttentionWordsProbe(data))
    batch = data.batch([1])
    scores = model(batch)[0, 0].detach().numpy()
    pairs = attention_block_by_pairs(batch)
    v = batch.vectors[0].numpy()
    weight, bias = (values[0].detach().numpy() for values in model.coefficients)
    for j in range(len(v)):
        for i in range(len(v)):
            head_weights = weight @ np.concatenate([v[i], v[j]]) + bias
            assert scores[j, 1 + i] == pytest.approx(head_weights @ pairs[j, i], rel=1e-4, abs=1e-3)
    root = model.root[0].detach().numpy()  # [feature, place, width and a bias]
    weights = np.einsum("fpw,jw->jfp", root[..., :-1], v) + root[..., -1]
    root = (weights / model.root_scales.numpy() * batch.special[0].numpy()).sum((1, 2))
    np.testing.assert_allclose(scores[:, 0], root, rtol=1e-4, atol=1e-3)


def test_whitening_changes_the_units_of_the_parameters_only():
    data = corpus(4)
    batch = data.batch([1])
    plain = randomised(AttentionProbe(data))
    white = AttentionProbe(data, whitened=True)
    with torch.no_grad():
        white.weight.copy_(plain.weight @ torch.linalg.inv(data.scales.whitening))
        white.root.copy_(plain.root)
    torch.testing.assert_close(white(batch), plain(batch), rtol=1e-3, atol=1e-2)
    plain = randomised(AttentionWordsProbe(data))
    white = AttentionWordsProbe(data, whitened=True)
    back = torch.linalg.inv(data.scales.whitening)
    with torch.no_grad():
        white.weight.copy_(back @ plain.weight)
        white.bias.copy_(plain.bias @ back)
        white.root.copy_(plain.root)
    torch.testing.assert_close(white(batch), plain(batch), rtol=1e-3, atol=1e-2)


def attention_block_by_pairs(batch):
    """[dependent, candidate, feature] of a batch of one sentence."""
    return batch.maps[0].permute(0, 2, 1).numpy()


def test_distance_probe_equals_one_hidden_layer_over_the_joined_input():
    data = corpus(4)
    model = randomised(DistancesWordsProbe(data, hidden=5))
    batch = data.batch([1])
    scores = model(batch)[0, 0].detach().numpy()
    v = batch.vectors[0].numpy()
    features = distance_features(batch.lengths, len(v))[0].numpy()
    candidate, dependent, distance, output = (
        parameter[0].detach().numpy()
        for parameter in (model.candidate, model.dependent, model.distance, model.output)
    )
    hidden_weight = np.concatenate([candidate, dependent[:-1], distance])
    for j in range(len(v)):
        for c in range(len(v) + 1):
            head = v[c - 1] if c else np.zeros(WIDTH)
            joined = np.concatenate([head, v[j], features[j, c]])
            hidden = np.tanh(joined @ hidden_weight + dependent[-1])
            assert scores[j, c] == pytest.approx(output @ hidden, abs=1e-4)


def test_gradient_of_the_hidden_layer_is_the_automatic_one():
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 3, 4, 8), (8, 5), (2, 3, 5), (2, 4, 5), (5,))
    inputs = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    for parameter in inputs[1:]:
        parameter.requires_grad_()
    features, distance, dependent, candidate, output = inputs
    joined = features @ distance + dependent[:, :, None] + candidate[:, None]
    expected, scores = joined.tanh() @ output, HiddenLayer.apply(*inputs)
    torch.testing.assert_close(scores, expected)
    weights = torch.randn(scores.shape, generator=generator, dtype=torch.float64)
    slow, fast = (torch.autograd.grad((x * weights).sum(), inputs[1:]) for x in (expected, scores))
    for one, other in zip(slow, fast, strict=True):
        torch.testing.assert_close(one, other)


def test_members_score_as_each_would_alone():
    data = corpus(4)
    batch = data.batch([0, 1, 2])
    for build in MODELS.values():
        both = randomised(build(data))
        scores = both(batch)
        for member in range(2):
            alone = copy.deepcopy(both)
            for parameter in alone.parameters():
                parameter.data = parameter.data[[member]]
            torch.testing.assert_close(alone(batch)[0], scores[member], rtol=1e-4, atol=1e-3)


def test_distance_features_by_hand():
    features = distance_features(torch.tensor([4]), 4)[0]
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


def test_candidates_are_root_and_the_other_words():
    data = corpus(6)
    candidates = data.batch([0, 1]).candidates()
    n = len(data.parses[0])
    for word in range(n):
        inside = set(torch.nonzero(candidates[0, word]).flatten().tolist())
        assert inside == set(range(n + 1)) - {word + 1}


def test_whitened_features_are_uncorrelated():
    data = corpus(12)
    blocks = [data.batch([index]) for index in data.splits["train"]]
    pairs = []
    for block in blocks:
        maps, inside = block.maps[0], block.candidates()[0, :, 1:]
        pairs.append(maps.transpose(1, 2)[inside] / data.scales.words)
    white = torch.cat(pairs) @ data.scales.whitening
    products = white.T @ white / len(white)
    assert (products - torch.eye(data.features)).abs().max() < 0.35  # shrunk where small
    assert (products - products.diag().diag()).abs().max() < 0.02


def test_scales_by_hand():
    data = corpus(8)
    deviations, specials = [], []
    for index in data.splits["train"]:
        batch = data.batch([index])
        block = batch.maps[0].numpy()
        for j in range(len(block)):
            others = np.delete(block[j], j, axis=1)
            deviations.append((others - others.mean(1, keepdims=True)) ** 2)
            specials.append(batch.special[0, j].numpy() ** 2)
    words = np.sqrt(np.concatenate(deviations, axis=1).mean(1))
    np.testing.assert_allclose(data.scales.words, words, rtol=1e-5)
    np.testing.assert_allclose(data.scales.root, np.sqrt(np.mean(specials, axis=0)), rtol=1e-5)


# training


@pytest.mark.parametrize("planted", [(0, 1), (1, 2)])
def test_probe_finds_a_planted_head(planted):
    data = corpus(80, planted=planted)
    result = fit_probe(data, ATTN, [0])
    assert result.counts[UAS].by_seed[0] > 98
    table = head_weights(result.model.coefficients, data)
    layer, head = planted
    assert (table["layer"][0], table["head"][0]) == (layer + 1, head + 1)
    assert table["u"][0] == table[["w", "u"]].abs().to_numpy().max()
    assert table["u_gain"][0] > 10 * table["u_gain"][1:].abs().max()


def test_words_choose_between_heads():
    """Short words follow one head, long ones another: only a probe of words can tell."""
    rng = np.random.default_rng(0)
    examples = []
    for index in range(80):
        n = int(rng.integers(4, 10))
        one = example(index, n, rng, split="dev" if index % 4 == 0 else "train")
        maps = one.attention.astype(np.float32)
        long = rng.random(n) < 0.5
        for head, mine in ((0, ~long), (1, long)):
            wrong = rng.integers(0, n + 1, n)
            target = np.where(mine, one.record["heads"], wrong)
            maps[0, head, 1:-1] = np.eye(n + 2)[target]
        words = ["long" if flag else "s" for flag in long]
        record = {**one.record, "words": words}
        examples.append(replace(one, attention=maps.astype(np.float16), record=record))

    def lengths(words):
        return np.array([[len(word) > 1, len(word) == 1] for word in words], np.float32)

    data = prepare(examples, lengths)
    attention = fit_probe(data, ATTN, [0]).counts[UAS].by_seed[0]
    words = fit_probe(data, ATTN_GLOVE, [0]).counts[UAS].by_seed[0]
    assert words > 95
    assert attention < 80


def test_same_seed_same_result_and_other_seeds_differ(trained_for):
    data = corpus()
    trained_for(epochs=2, learning_rate=0.05, min_updates=1)
    for kind in MODELS:
        first = fit_probe(data, kind, [3]).model.state_dict()
        again = fit_probe(data, kind, [3]).model.state_dict()
        assert all(torch.equal(first[name], again[name]) for name in first)
        both = fit_probe(data, kind, [3, 4]).model.named_parameters()
        for name, parameter in both:
            torch.testing.assert_close(parameter[:1], first[name], rtol=1e-3, atol=1e-3)
            assert not torch.allclose(parameter[0], parameter[1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", MODELS)
def test_threads_change_no_parameter(kind, trained_for):
    data = corpus(24)
    trained_for(epochs=2, min_updates=1)
    fits = [partial(fit_probe, data, kind, [seed]) for seed in (0, 1, 2)]
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append([fit.model.state_dict() for fit in side_by_side(fits, "probes")])
    for other in found[1:]:
        for one, again in zip(found[0], other, strict=True):
            assert all(torch.equal(one[name], again[name]) for name in one)


def test_training_leaves_the_global_random_state_alone(trained_for):
    trained_for(epochs=1, min_updates=1)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    fit_probe(corpus(12), DISTANCES_GLOVE, [0])
    assert torch.equal(torch.rand(1), expected)


def test_each_member_keeps_its_best_epoch_and_stops():
    model = torch.nn.Linear(1, 2, bias=False)
    first, second = [3.0, 1.0, 2.0, 2.5, 0.1], [3.0, 2.0, 1.5, 1.0, 0.5]
    seen, values = [], iter(zip(first, second, strict=True))

    def validate():
        seen.append(model.weight.detach().clone())
        return torch.tensor(next(values))

    losses = train(
        model,
        batches=lambda: [torch.ones(1, 1)],
        loss=lambda x: model(x)[0],
        validate=validate,
        epochs=5,
        schedule=Schedule(learning_rate=0.1, patience=2),
    )
    assert losses.tolist() == [1.0, 0.5]  # the first had stopped before its last epoch
    assert model.weight.tolist() == [seen[1][0].tolist(), seen[4][1].tolist()]


def test_training_ends_when_every_member_has_stopped():
    model = torch.nn.Linear(1, 1, bias=False)
    validations = iter([torch.tensor([value]) for value in (3.0, 1.0, 2.0, 2.5, 0.1)])
    train(
        model,
        batches=lambda: [torch.ones(1, 1)],
        loss=lambda x: model(x)[0],
        validate=lambda: next(validations),
        epochs=5,
        schedule=Schedule(learning_rate=0.1, patience=2),
    )
    assert next(validations).item() == pytest.approx(0.1)


def test_small_data_trains_for_more_epochs():
    schedule = Schedule(epochs=8, batch_size=16, min_updates=300)
    assert schedule.epochs_for(16 * 100) == 8
    assert schedule.epochs_for(16 * 10) == 30


def test_fractions_of_train_are_nested():
    data = corpus()
    small, large = training_sentences(data, 0.25), training_sentences(data, 0.5)
    assert len(small) < len(large)
    assert set(small) < set(large) < set(data.splits["train"])


def test_part_of_train_is_counted():
    table = probe_table([fit_probe(corpus(24), ATTN, [0], part) for part in (0.5, 1.0)])
    assert table["n_train"].tolist() == [9, 9, 18, 18]
    assert set(table["metric"]) == {UAS, UAS_WITHOUT_PUNCTUATION}


def test_a_member_takes_its_own_rate_and_decay():
    """Adam's first step is the learning rate, whatever the gradient."""
    model = torch.nn.Linear(1, 3, bias=False)
    start = model.weight.detach().clone()
    train(
        model,
        batches=lambda: [torch.ones(1, 1)],
        loss=lambda x: model(x)[0],
        validate=lambda: torch.zeros(3),
        epochs=1,
        schedule=Schedule(learning_rate=0.1),
        settings=[Setting(), Setting(rate=4), Setting(rate=2, decay=3)],
    )
    expected = start - torch.tensor([[0.1], [0.4], [0.2]])
    expected[2] -= 2 * 0.1 * 3 * start[2]
    torch.testing.assert_close(model.weight.detach(), expected)


def test_setting_is_chosen_by_what_it_reaches_on_the_slice(monkeypatch, trained_for):
    trained_for(epochs=4, learning_rate=0.02, min_updates=1)
    hopeless, good = Setting(rate=1e-9), Setting()
    for settings in ((hopeless, good), (good, hopeless)):
        monkeypatch.setattr(table3, "SETTINGS", settings)
        assert choose_setting(corpus(80, planted=(0, 1)), ATTN) == good


def test_heads_of_the_control_task_by_hand():
    # ROOT, the first word, the last; a word that would be its own head goes to ROOT
    assert control_heads(np.array([0, 1, 2, 1, 2])).tolist() == [0, 1, 5, 1, 0]
    assert control_heads(np.array([1, 2])).tolist() == [0, 0]


def test_a_word_has_one_behaviour_everywhere():
    data = corpus(40)
    behaviours = {}
    for parse, rows in zip(data.parses, data.rows, strict=True):
        for place, (row, head) in enumerate(zip(rows, parse.control, strict=True), 1):
            if 1 < place < len(parse):  # neither the first word nor the last
                behaviours.setdefault(row, set()).add({1: "first", 0: "ROOT"}.get(head, "last"))
    assert all(len(found) == 1 for found in behaviours.values())
    assert set.union(*behaviours.values()) == {"first", "ROOT", "last"}


def test_words_learn_the_control_task_and_attention_does_not():
    data = corpus(120)
    chance, learned = (
        fit_probe(data, kind, [0], control_task=True).counts[CONTROL_TASK].by_seed[0]
        for kind in (ATTN, DISTANCES_GLOVE)
    )
    assert learned > chance + 20


def test_selectivity_is_what_the_tree_has_above_the_control_task():
    total = np.array([4])
    counts = {
        UAS_WITHOUT_PUNCTUATION: Counts(np.array([[3], [1]]), total),
        CONTROL_TASK: Counts(np.array([[1]]), total),
    }
    table = probe_table([with_selectivity(ProbeResult("Attn", counts, 9, np.array(["a"])))])
    assert table["metric"].tolist() == [UAS_WITHOUT_PUNCTUATION, "control task", "selectivity"]
    assert table["value"].tolist() == [50, 25, 25]
    assert table["paper_value"].notna().tolist() == [True, False, False]


def test_controls_have_a_result_for_each_part_and_initialisation(monkeypatch, trained_for):
    trained_for(epochs=1, min_updates=1)
    asked = []
    monkeypatch.setattr(table3, "choose_setting", lambda *given: asked.append(given) or Setting(2))
    stores = [list(examples(24, seed=seed)) for seed in range(3)]
    attention, first, parts = fit_controls(stores, vectors)
    assert sorted(kind for _, kind in asked) == [RANDOM_ATTN, RANDOM_ATTN_GLOVE]
    assert [part.n_train for part in parts] == [2, 4, 9, 18]
    assert {len(part.counts[UAS].right) for part in parts} == {3}
    assert set(parts[-1].counts) == {UAS, UAS_WITHOUT_PUNCTUATION, CONTROL_TASK}
    assert len(parts[-1].counts[CONTROL_TASK].right) == 1
    np.testing.assert_array_equal(first.counts[UAS].right, parts[-1].counts[UAS].right[:1])
    assert (attention.probe, attention.n_train) == ("Random-init Attn", 18)


def test_the_control_task_is_a_member_that_changes_no_other(trained_for):
    trained_for(epochs=3, learning_rate=0.02, min_updates=1)
    data = corpus()
    for kind in MODELS:
        alone, beside = (
            fit_probe(data, kind, [3, 4], control_task=asked) for asked in (False, True)
        )
        assert set(beside.counts) - set(alone.counts) == {CONTROL_TASK}
        for name, parameter in alone.model.named_parameters():
            own = dict(beside.model.named_parameters())[name]
            torch.testing.assert_close(own[:2], parameter, rtol=1e-3, atol=1e-3)
        np.testing.assert_array_equal(alone.counts[UAS].total, beside.counts[CONTROL_TASK].total)


def test_a_batch_knows_the_heads_of_both_tasks():
    data = corpus(8)
    batch = data.batch([2, 5])
    for row, index in enumerate((2, 5)):
        n = len(data.parses[index])
        assert batch.heads[row, :n].tolist() == data.parses[index].heads.tolist()
        assert batch.control[row, :n].tolist() == data.parses[index].control.tolist()
        assert (batch.heads[row, n:] == -1).all() and (batch.control[row, n:] == -1).all()


def test_differences_are_paired_over_articles():
    rng = np.random.default_rng(0)
    total = rng.integers(5, 30, 60)
    easy = rng.random(60) * 0.6  # some sentences are easy for every probe
    articles = np.repeat(list("abcdefghijkl"), 5)
    results = {}
    for lead, name in enumerate(dict.fromkeys(sum(COMPARISONS, ()))):
        right = np.stack([rng.binomial(total, easy + 0.05 * lead) for _ in range(2)])
        metric = UUAS if name == STRUCTURAL else UAS_WITHOUT_PUNCTUATION
        results[name] = ProbeResult(name, {metric: Counts(right, total)}, 9, articles)
    table = difference_table(results).set_index(["probe", "other"])
    assert list(table.index) == list(COMPARISONS)
    one, other = (results[name].counts[UAS_WITHOUT_PUNCTUATION] for name in (ATTN_GLOVE, ATTN))
    row = table.loc[ATTN_GLOVE, ATTN]
    expected = one.by_seed.mean() - other.by_seed.mean()
    assert row["difference"] == pytest.approx(expected)

    def by_article(values):
        return values.reshape(12, 5).sum(axis=1)

    sides = [(by_article(side.right.mean(0)), by_article(total)) for side in (one, other)]
    low, high = paired_interval(*sides)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((100 * low[0], 100 * high[0]))
    alone = probe_table([results[name] for name in (ATTN_GLOVE, ATTN)])
    apart = np.hypot(*(alone["ci_high"] - alone["ci_low"]))
    assert row["ci_high"] - row["ci_low"] < 0.7 * apart


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
    result = right_branching(hand_made())
    # next word: 2 3 4 ROOT against 2 0 2 2 (one right); 2 3 ROOT against 2 3 0 (three)
    assert result.counts[UAS].right.tolist() == [[1, 3]]
    assert result.counts[UAS].total.tolist() == [4, 3]
    assert result.counts[UAS_WITHOUT_PUNCTUATION].total.tolist() == [3, 3]
    row, compared = (row for _, row in probe_table([result]).iterrows())
    assert row["value"] == pytest.approx(100 * 4 / 7)
    assert compared["value"] == pytest.approx(100 * 4 / 6)
    assert (compared["probe"], compared["paper_value"]) == ("Right-branching", 26)
    assert np.isnan(row["paper_value"])  # the paper leaves punctuation out
    assert (row["n_train"], row["n_dev"]) == (0, 2)


@pytest.mark.parametrize("kind", MODELS)
def test_scores_are_those_of_the_likeliest_candidates_in_the_order_asked_for(kind):
    """With and without punctuation, and for the last member the heads of the control task."""
    data = corpus(20)
    model = randomised(MODELS[kind](data))
    indices = [7, 2, 15, 0]
    for index in indices:
        data.parses[index].punctuation[::3] = True
    found = score(model, data, indices, seeds=1)
    for place, index in enumerate(indices):
        parse = data.parses[index]
        best = candidate_scores(model, data.batch([index]))[:, 0].argmax(-1).numpy()
        spoken = ~parse.punctuation
        expected = {
            UAS: (best[:1] == parse.heads, len(parse)),
            UAS_WITHOUT_PUNCTUATION: ((best[:1] == parse.heads) & spoken, spoken.sum()),
            CONTROL_TASK: ((best[1:] == parse.control) & spoken, spoken.sum()),
        }
        for metric, (right, total) in expected.items():
            assert found[metric].right[:, place].tolist() == right.sum(axis=1).tolist()
            assert found[metric].total[place] == total
    assert set(score(model, data, indices)) == {UAS, UAS_WITHOUT_PUNCTUATION}


def test_contrast_by_hand():
    data = hand_made()
    expected, words = np.zeros(data.features), 0
    for index in data.splits["dev"]:
        block = data.batch([index]).maps[0].numpy()
        heads = data.parses[index].heads
        for j, head in enumerate(heads):
            others = [i for i in range(len(heads)) if i not in (j, head - 1)]
            if head and others:
                mean = np.mean([block[j, :, i] for i in others], axis=0)
                expected += block[j, :, head - 1] - mean
                words += 1
    np.testing.assert_allclose(attention_contrast(data), expected / words, atol=1e-6)


def test_tables_of_seeds():
    counts = {UAS_WITHOUT_PUNCTUATION: Counts(np.array([[1, 2], [2, 2], [3, 2]]), np.array([4, 4]))}
    result = ProbeResult("Random-init Attn + GloVe", counts, 10, np.array(["a", "b"]))
    table = probe_table([result])
    assert table.columns.tolist() == [
        "probe", "metric", "value", "ci_low", "ci_high", "n_train", "n_dev", "paper_value",
    ]  # fmt: skip
    assert table["value"][0] == 50
    assert table["ci_low"][0] <= 50 <= table["ci_high"][0]
    spread = seed_table([result]).iloc[0]
    assert (spread["mean"], spread["sd"], spread["min"], spread["max"]) == (50, 12.5, 37.5, 62.5)
    single = replace(
        result, counts={UAS_WITHOUT_PUNCTUATION: Counts(np.array([[0, 0]]), np.array([4, 4]))}
    )
    pooled = pool([result, single])
    assert pooled.counts[UAS_WITHOUT_PUNCTUATION].by_seed.tolist() == [37.5, 50, 62.5, 0]
    assert probe_table([pooled])["paper_value"].tolist() == [30]


# errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"split": "test"}, "example 0: split is 'test', expected train or dev"),
        ({"heads": [1, 9, 0]}, "example 0: heads must lie between 0 and the 3 words"),
        ({"heads": [0]}, "example 0: expected 3 heads"),
    ],
)
def test_bad_records(change, message):
    one = example(0, 3, np.random.default_rng(0))
    with pytest.raises(InputError, match=message):
        prepare([replace(one, record={**one.record, **change})])


def test_unparsed_nan_and_missing_split():
    one = example(0, 3, np.random.default_rng(0))
    with pytest.raises(InputError, match="example 0: no dependency parse"):
        prepare([replace(one, record={"words": ["a"] * 3, "split": "train"})])
    maps = one.attention.copy()
    maps[0, 0, 1, 1] = np.nan
    with pytest.raises(MapError, match="example 0: its attention has a negative or undefined"):
        prepare([replace(one, attention=maps)])
    with pytest.raises(InputError, match="no dev sentences"):
        prepare([one])
    with pytest.raises(InputError, match="no train sentences"):
        prepare([])


def test_each_word_is_looked_up_once_and_stands_where_it_is_read():
    asked = []

    def watched(words):
        asked.extend(words)
        return vectors(words)

    data = corpus(20, vectors=watched)
    assert len(asked) == len(set(asked)) > 1
    for batch in data.batches(data.splits["train"], size=4):
        for row, (index, length) in enumerate(zip(batch.indices, batch.lengths, strict=True)):
            words = [f"w{place}" for place in range(length)]
            assert len(data.parses[index]) == length
            np.testing.assert_array_equal(batch.vectors[row, :length], vectors(words))
            assert not batch.vectors[row, length:].any()


def test_word_vectors_missing_or_misshapen():
    with pytest.raises(InputError, match="needs word vectors"):
        fit_probe(corpus(8, vectors=None), ATTN_GLOVE, [0])
    with pytest.raises(InputError, match="word vectors of shape"):
        corpus(8, vectors=lambda words: np.zeros((1, WIDTH)))


# the whole table


def test_table3_has_every_row(monkeypatch, trained_for):
    trained_for(epochs=1, min_updates=1)
    monkeypatch.setattr(structural_probe, "SCHEDULE", Schedule(epochs=1, min_updates=1))

    def store(seed):
        for one in examples(24, seed=seed):
            hidden = np.random.default_rng(one.index).standard_normal((2, len(one), WIDTH))
            yield replace(one, hidden=hidden.astype(np.float16))

    tables = table3.table3(list(store(0)), [list(store(1)), list(store(2))], vectors, seeds=2)
    probes = tables["probes"].pivot(index="probe", columns="metric", values="value")
    with_control = {"Distances + GloVe", "Random-init Attn + GloVe", "Attn", "Attn + GloVe"}
    assert set(probes.index) == with_control | {"Structural probe", "Right-branching"}
    assert set(probes.index[probes["selectivity"].notna()]) == with_control
    difference = probes[UAS_WITHOUT_PUNCTUATION] - probes["control task"]
    np.testing.assert_allclose(difference.dropna(), probes["selectivity"].dropna())
    curves = tables["learning_curves"].query("metric == @UAS")
    assert set(curves["probe"]) == {"Attn", "Attn + GloVe", "Random-init Attn + GloVe"}
    assert set(curves.groupby("probe")["n_train"].agg(tuple)) == {(2, 4, 9, 18)}
    assert not curves["metric"].isin(["control task"]).any()
    for name in ("probe_differences", "control_probe_differences"):
        pairs = tables[name][["probe", "other"]].itertuples(index=False, name=None)
        assert tuple(pairs) == COMPARISONS
    differences = tables["probe_differences"].set_index(["probe", "other"])["difference"]
    compared = probes[UAS_WITHOUT_PUNCTUATION]
    assert differences["Attn", "Right-branching"] == pytest.approx(
        compared["Attn"] - compared["Right-branching"]
    )
    assert len(tables["probe_heads"]) == LAYERS * HEADS
    assert tables["structural_layers"]["chosen"].sum() == 1
