"""The probes of section 5: by hand, against slow references, and at their optimum."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from tolerances import float32_error
from toy_corpora import random_heads

from helpers.errors import InputError
from helpers.metrics import rows_of_model
from helpers.metrics.reference import UAS_WITHOUT_PUNCTUATION, UUAS
from helpers.metrics.statistics import Estimate, weighted_ratios, with_seed_noise
from helpers.probes import bilinear as bilinear_probe
from helpers.probes import distances as distance_probe
from helpers.probes import linear as probes
from helpers.probes import structural as structural_probe
from helpers.probes import table3
from helpers.probes.data import (
    N_SPECIAL_POSITIONS,
    BlockBuffer,
    Counts,
    attention_block,
    control_heads,
    prepare,
)
from helpers.probes.distances import DistancesWordsProbe, distance_features, fit_distances
from helpers.probes.linear import (
    LinearProbe,
    LinearProbeFitter,
    Task,
    fit_linear,
    fit_together,
)
from helpers.probes.table3 import ATTN, ATTN_GLOVE, COMPARISONS, CONTROL_TASK
from helpers.probes.training import (
    UAS,
    UNDIRECTED,
    Schedule,
    candidate_scores,
    loss,
    predicted_heads,
)
from helpers.store.store import Example

LAYERS = 2
HEADS = 3
WIDTH = 4


def example(index, n, rng, *, split="train", planted=None, relations=None):
    """Make random maps; the head ``planted`` (layer, head) attends to gold heads."""
    heads = random_heads(rng, n).tolist()
    maps = rng.random((LAYERS, HEADS, n + 2, n + 2))
    maps /= maps.sum(-1, keepdims=True)
    if planted is not None:
        rows = np.full((n, n + 2), 0.05 / (n + 2))
        rows[np.arange(n), heads] += 0.95  # position 0, to which the root attends, is [CLS]
        maps[planted][1:-1] = rows
    record = {
        "words": [f"w{i}" for i in range(n)],
        "heads": heads,
        "relations": relations or ["dep"] * n,
        "split": split,
    }
    return Example(index, maps.astype(np.float16), record)


def vectors(words):
    """Return random vectors that depend on nothing but the word."""
    rows = [np.random.default_rng(list(word.encode())).standard_normal(WIDTH) for word in words]
    return np.array(rows, np.float32).reshape(-1, WIDTH)


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
    "Distances + GloVe": lambda data: DistancesWordsProbe(WIDTH, 0),
}


# the layout


def test_attention_block_has_both_directions_and_special_positions():
    sentence = example(0, 3, np.random.default_rng(0))
    block = attention_block(sentence)
    maps = sentence.attention.reshape(LAYERS * HEADS, 5, 5)
    heads = LAYERS * HEADS
    assert block.shape == (3, 3 + N_SPECIAL_POSITIONS, 2 * heads)
    for dependent in range(3):
        for position in range(5):
            to_dependent = maps[:, position, 1 + dependent]
            to_candidate = maps[:, 1 + dependent, position]
            np.testing.assert_array_equal(block[dependent, position, :heads], to_dependent)
            np.testing.assert_array_equal(block[dependent, position, heads:], to_candidate)


def test_attention_block_of_two_special_tokens_before_and_none_after():
    sentence = example(0, 3, np.random.default_rng(0))
    block = attention_block(Example(0, sentence.stored_attention, sentence.record, offset=2))
    maps = sentence.attention.reshape(LAYERS * HEADS, 5, 5).astype(np.float32)
    heads = LAYERS * HEADS
    np.testing.assert_allclose(block[1, 0, :heads], maps[:, :2, 3].mean(1), atol=1e-3)
    np.testing.assert_allclose(block[1, 0, heads:], maps[:, 3, :2].sum(1), atol=1e-3)
    assert not block[:, -1].any()


def test_block_buffer_reads_blocks_in_any_order():
    rng = np.random.default_rng(0)
    blocks = [rng.random((n, 2, 3)).astype(np.float16) for n in (4, 2, 5, 1)]
    buffer = BlockBuffer()
    for index, block in enumerate(blocks):
        buffer[index] = block
        np.testing.assert_array_equal(buffer[0], blocks[0])
    for index in (3, 1, 2, 0):
        np.testing.assert_array_equal(buffer[index], blocks[index])


# scores


@pytest.mark.parametrize("with_words", [False, True])
def test_linear_probe_scores_follow_the_equations(with_words):
    data = corpus(4)
    model = randomised(LinearProbe(data, with_words=with_words))
    special, maps = data.maps([1])
    special = special.numpy()
    scores = model(data, [1])[0].detach().numpy()
    words = np.concatenate([data.parses[index].words for index in data.splits["train"]])
    rows = data.vectors[words].numpy()
    width = model.candidate.shape[1]
    v = ((data.vectors[data.parses[1].words].numpy() - rows.mean(0)) / rows.std(0))[:, :width]
    candidate = model.candidate.detach().numpy()
    dependent = model.dependent.detach().numpy()
    root = model.root.detach().numpy()
    u_1, w_1 = np.split(candidate, 2)  # a candidate's own row has the directions exchanged
    for j, pairs in enumerate(maps.numpy()):
        for i, features in enumerate(pairs):
            weights = np.concatenate([w_1, u_1]) @ v[i] + dependent @ np.append(v[j], 1)
            assert scores[j, 1 + i] == pytest.approx(weights @ features, rel=1e-4, abs=1e-4)
        expected = root @ np.append(v[j], 1) @ special[j]
        assert scores[j, 0] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_distances_probe_is_one_hidden_layer_over_joined_input():
    data = corpus(4)
    model = randomised(DistancesWordsProbe(WIDTH, 0))
    scores = model(data, [1])[0].detach().numpy()
    v = data.vectors[data.parses[1].words].numpy()
    features = distance_features(len(v)).numpy()
    dependent = model.dependent.detach().numpy()
    output = model.output.detach().numpy()
    weights = (model.candidate, model.dependent[:-1], model.distance)
    hidden_weight = torch.cat(weights).detach().numpy()
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
    deviations = []
    specials = []
    for index in data.splits["train"]:
        special, maps = data.maps([index])
        specials.append(special.numpy())
        for j, block in enumerate(maps.numpy()):
            candidates = np.delete(block, j, axis=0)
            deviations.append((candidates - candidates.mean(0)) ** 2)
    words = np.sqrt(np.concatenate(deviations).mean(0))
    np.testing.assert_allclose(data.units[0], words, rtol=1e-5)
    root = np.sqrt(np.square(np.concatenate(specials)).mean(0))
    np.testing.assert_allclose(data.units[1], root, rtol=1e-5)


def test_units_are_finite_with_a_sentence_of_one_word():
    rng = np.random.default_rng(0)
    lengths = {"train": (1, 4, 5), "dev": (3,)}
    sentences = []
    for split, n_words in lengths.items():
        sentences += [example(len(sentences), n, rng, split=split) for n in n_words]
    data = prepare(sentences)
    without_it = prepare(sentences[1:])
    np.testing.assert_allclose(data.units[0], without_it.units[0], rtol=1e-5)
    assert torch.isfinite(data.units[1]).all()


# the optimum


def penalty(probe, l2):
    total = 0
    for parameter, units in zip(probe.parameters(), probe.units, strict=True):
        total = total + (parameter * units).square().sum()
    return l2 / 2 * total


def penalised_loss(data, probe, l2):
    """Compute the loss of a probe on train from its definition, sentence by sentence."""
    summed = 0
    words = 0
    for index in data.splits["train"]:
        scores = candidate_scores(probe, data, [index])[0].double()
        gold = torch.from_numpy(data.parses[index].heads)
        summed = summed - scores.log_softmax(-1)[torch.arange(len(gold)), gold].sum()
        words += len(gold)
    return summed / words + penalty(probe, l2)


@pytest.mark.parametrize("with_words", [False, True])
def test_fit_linear_is_at_the_only_optimum(with_words, monkeypatch):
    """The loss is convex: its gradient is zero at the optimum and nowhere else."""
    monkeypatch.setattr(probes, "EXACT_TOLERANCE", 1e-9)
    data = corpus(30)
    l2 = 0.02
    fit = fit_linear(data, with_words=with_words, l2=l2)
    value = penalised_loss(data, fit.probe, l2)
    value.backward()
    steepest = 0
    for parameter, units in zip(fit.probe.parameters(), fit.probe.units, strict=True):
        if parameter.numel():
            steepest = max(steepest, (parameter.grad / units).abs().max().item())
    assert steepest == pytest.approx(fit.gradient, rel=0.2, abs=1e-5)
    assert steepest < 1e-3
    assert value.item() == pytest.approx(fit.loss + penalty(fit.probe, l2).item(), abs=1e-5)


def test_fit_linear_chooses_the_penalty_and_fits_to_all_sentences(monkeypatch):
    data = corpus(60, planted=(0, 1))
    chosen = fit_linear(data, with_words=True)
    again = fit_linear(data, with_words=True, l2=chosen.l2)
    assert chosen.passes > again.passes
    assert chosen.loss == pytest.approx(again.loss, abs=1e-3)
    monkeypatch.setattr(probes, "L2", (1e6, chosen.l2))
    assert fit_linear(data, with_words=True).l2 == chosen.l2


TASKS = [Task(words, control) for words in (False, True) for control in (False, True)]


@pytest.fixture
def workers():
    with ThreadPoolExecutor(2) as executor:
        yield executor


def test_pass_over_equals_autograd(workers):
    """One pass for four probes, against the loss of each, differentiated by torch."""
    data = corpus(30)
    control = data.control_task()
    rng = torch.Generator().manual_seed(1)
    requests = []
    for seed, task in enumerate(TASKS):
        probe = randomised(LinearProbe(data, with_words=task.with_words), seed)
        weights = torch.rand(len(data.parses), generator=rng, dtype=torch.float64)
        task_data = control if task.on_control_task else data
        requests.append((LinearProbeFitter(probe, task_data, workers), weights))
    train = data.splits["train"]
    sums = probes.pass_over(data.batches(train), requests, workers)
    for (fitter, weights), (losses, gradient) in zip(requests, sums, strict=True):
        summed = 0
        for index in train:
            of_sentence = loss(fitter.probe, fitter.data, [index], reduction="sum")
            assert losses[index].item() == pytest.approx(of_sentence.item(), rel=1e-5)
            summed = summed + weights[index] * of_sentence
        parameters = list(fitter.probe.parameters())
        gradients = torch.autograd.grad(summed, parameters, materialize_grads=True)
        expected = probes.flatten(gradients).double()
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-4)


def test_fits_that_share_passes_are_those_of_each_alone(monkeypatch):
    # Where the loss is nearly flat, roundings of float32 decide when a long search ends.
    monkeypatch.setattr(probes, "EXACT_TOLERANCE", 1e-3)
    data = corpus(60, planted=(0, 1))
    together = dict(zip(TASKS, fit_together(data, TASKS), strict=True))
    for task, fit in together.items():
        if task.on_control_task:
            heads = together[task._replace(on_control_task=False)]
            alone = fit_linear(data.control_task(), with_words=task.with_words, l2=heads.l2)
        else:
            alone = fit_linear(data, with_words=task.with_words)
        assert fit.l2 == alone.l2
        assert fit.loss == pytest.approx(alone.loss, abs=1e-5)
        assert fit.passes == alone.passes


@pytest.mark.parametrize("planted", [(0, 1), (1, 2)])
def test_attn_finds_a_planted_head(planted):
    data = corpus(80, planted=planted)
    fit, counts = table3.linear_result(data, ATTN)
    assert counts[UAS].by_seed[0] > 98
    table = table3.head_weights(fit.probe, data)
    layer, head = planted
    assert table["layer"][0] == layer + 1
    assert table["head"][0] == head + 1
    assert table["u_gain"][0] > 10 * table["u_gain"][1:].abs().max()


@pytest.mark.parametrize("with_words", [False, True])
def test_fit_linear_does_not_depend_on_threads(with_words):
    data = corpus(24)
    parameters = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        fit = fit_linear(data, with_words=with_words)
        parameters.append(fit.probe.dependent)
    assert torch.equal(parameters[1], parameters[0])
    assert torch.equal(parameters[2], parameters[0])


def test_trained_result_does_not_depend_on_threads():
    data = corpus(24)
    scores = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        counts = table3.trained_result(data, "Distances + GloVe", fit_distances, 2)
        scores.append(counts[UAS].right)
    np.testing.assert_array_equal(scores[1], scores[0])
    np.testing.assert_array_equal(scores[2], scores[0])


def test_control_heads_by_hand():
    # ROOT, the first word, the last; a word that would be its own head goes to ROOT
    assert control_heads(np.array([0, 1, 2, 1, 2])).tolist() == [0, 1, 5, 1, 0]
    assert control_heads(np.array([1, 2])).tolist() == [0, 0]


def test_control_task_is_learned_from_words_and_not_from_attention():
    data = corpus(120)
    _, attention = table3.linear_result(data.control_task(), ATTN)
    words = table3.trained_result(data, "Distances + GloVe", fit_distances, 1)
    attention_uas = attention[UAS_WITHOUT_PUNCTUATION].by_seed[0]
    word_accuracy = words[CONTROL_TASK].by_seed[0]
    assert word_accuracy > attention_uas + 20


ARTICLES = np.repeat(list("abcdefghijkl"), 5)


@pytest.fixture
def compared_results():
    """Results of all probes of `COMPARISONS` on the same sentences, two seeds each."""
    rng = np.random.default_rng(0)
    total = rng.integers(5, 30, len(ARTICLES))
    difficulty = rng.random(len(ARTICLES)) * 0.6  # some sentences are easy for every probe
    names = []
    for pair in COMPARISONS:
        names += [name for name in pair if name not in names]
    results = {}
    for lead, name in enumerate(names):
        share = difficulty + 0.05 * lead
        counts = Counts(np.stack([rng.binomial(total, share) for _ in range(2)]), total, ARTICLES)
        by_metric = {
            UAS_WITHOUT_PUNCTUATION: counts,
            UNDIRECTED: Counts(total[None], total, ARTICLES),
        }
        if name == table3.STRUCTURAL:
            by_metric = {UUAS: counts}
        results[name] = by_metric
    return results


def article_sums(counts):
    """Sum counts over the five sentences of each article, with the mean over seeds."""
    right = counts.right.mean(0).reshape(12, 5).sum(axis=1)
    total = counts.total.reshape(12, 5).sum(axis=1)
    return right, total


def test_difference_table_is_paired_over_articles(compared_results):
    table = table3.difference_table(compared_results).set_index(["probe", "other"])
    assert list(table.index) == list(COMPARISONS)
    row = table.loc[ATTN_GLOVE, ATTN]
    minuend = compared_results[ATTN_GLOVE][UAS_WITHOUT_PUNCTUATION]
    subtrahend = compared_results[ATTN][UAS_WITHOUT_PUNCTUATION]
    expected = minuend.by_seed.mean() - subtrahend.by_seed.mean()
    assert row["difference"] == pytest.approx(expected)
    sums = zip(article_sums(minuend), article_sums(subtrahend), strict=True)
    paired = weighted_ratios(*(np.column_stack(pair) for pair in sums), [1, -1])
    over_articles = Estimate(expected, 100 * paired.low, 100 * paired.high)
    interval = with_seed_noise(over_articles, minuend.by_seed, subtrahend.by_seed)
    assert row["difference_low"] == pytest.approx(interval.low)
    assert row["difference_high"] == pytest.approx(interval.high)
    assert interval.low < over_articles.low


def test_difference_table_compares_uuas_with_undirected_edges(compared_results):
    table = table3.difference_table(compared_results).set_index(["probe", "other"])
    uuas = compared_results[table3.STRUCTURAL][UUAS].by_seed.mean()
    # Attn + GloVe finds all edges.
    difference = table.loc[(table3.STRUCTURAL, ATTN_GLOVE), "difference"]
    assert difference == pytest.approx(uuas - 100)


# scores and tables


@pytest.fixture
def hand_made():
    """One train and two dev sentences with known parses and random maps."""
    rng = np.random.default_rng(0)

    def sentence(index, heads, relations, split):
        random_parse = example(index, len(heads), rng, split=split, relations=relations)
        return replace(random_parse, record={**random_parse.record, "heads": heads})

    return prepare(
        [
            sentence(0, [2, 0], ["dep", "root"], "train"),
            sentence(1, [2, 0, 2, 2], ["nsubj", "root", "obj", "punct"], "dev"),
            sentence(2, [2, 3, 0], ["det", "nn", "root"], "dev"),
        ]
    )


def test_right_branching_by_hand(hand_made):
    counts = table3.right_branching(hand_made)
    # next word: 2 3 4 ROOT against 2 0 2 2 (one right); 2 3 ROOT against 2 3 0 (three)
    assert counts[UAS].right.tolist() == [[1, 3]]
    assert counts[UAS].total.tolist() == [4, 3]
    assert counts[UAS_WITHOUT_PUNCTUATION].total.tolist() == [3, 3]
    # Edges: both of the first, one of them by its other end, without that to punctuation.
    edges = counts[UNDIRECTED]
    assert edges.right.tolist() == [[2, 2]]
    assert edges.total.tolist() == [2, 2]


def test_probe_table_by_hand(hand_made):
    results = {table3.RIGHT_BRANCHING: table3.right_branching(hand_made)}
    table = table3.probe_table(results, 1).set_index("metric")
    assert set(table["probe"]) == {"Right-branching"}
    assert table.loc[UAS, "value"] == pytest.approx(100 * 4 / 7)
    assert np.isnan(table.loc[UAS, "paper_value"])  # the paper leaves punctuation out
    assert table.loc[UAS_WITHOUT_PUNCTUATION, "value"] == pytest.approx(100 * 4 / 6)
    assert table.loc[UAS_WITHOUT_PUNCTUATION, "paper_value"] == 26
    assert set(table["n_train"]) == {0}
    assert set(table["n_dev"]) == {2}


@pytest.mark.parametrize("model", MODELS)
def test_predicted_heads_are_in_the_order_of_the_indices(model):
    data = corpus(20)
    probe = randomised(MODELS[model](data))
    indices = [7, 2, 15, 0]
    heads = predicted_heads(probe, data, indices)
    for index, predicted in zip(indices, heads, strict=True):
        best = candidate_scores(probe, data, [index])[0].argmax(-1).numpy()
        np.testing.assert_array_equal(predicted, best)


def test_attachment_counts_heads_with_and_without_punctuation():
    data = corpus(20)
    rng = np.random.default_rng(1)
    parses = data.parses[:4]
    predicted_by_sentence = []
    for parse in parses:
        parse.punctuation[::3] = True
        guesses = rng.integers(0, len(parse) + 1, len(parse))
        predicted_by_sentence.append(np.where(rng.random(len(parse)) < 0.5, parse.heads, guesses))
    counts = table3.attachment(parses, predicted_by_sentence)
    for sentence, (parse, predicted) in enumerate(zip(parses, predicted_by_sentence, strict=True)):
        is_word = ~parse.punctuation
        is_right = predicted == parse.heads
        expected = {
            UAS: (is_right.sum(), len(parse)),
            UAS_WITHOUT_PUNCTUATION: ((is_right & is_word).sum(), is_word.sum()),
        }
        for metric, (right, total) in expected.items():
            assert counts[metric].right[0, sentence] == right
            assert counts[metric].total[sentence] == total


def test_attention_contrast_by_hand(hand_made):
    summed = np.zeros(2 * LAYERS * HEADS)
    words = 0
    for index in hand_made.splits["dev"]:
        _, maps = hand_made.maps([index])
        heads = hand_made.parses[index].heads
        for j, (head, candidates) in enumerate(zip(heads, maps.numpy(), strict=True)):
            remaining = [i for i in range(len(heads)) if i not in (j, head - 1)]
            if head and remaining:
                summed += candidates[head - 1] - candidates[remaining].mean(axis=0)
                words += 1
    np.testing.assert_allclose(
        table3.attention_contrast(hand_made), summed / words, atol=float32_error(1.0)
    )


# errors


def test_prepare_refuses_a_record_without_syntax():
    sentence = example(0, 3, np.random.default_rng(0))
    record = {"words": sentence.record["words"], "split": "train"}
    with pytest.raises(InputError, match="example 0 has no syntactic heads"):
        prepare([replace(sentence, record=record)])


def test_prepare_refuses_a_treebank_without_dev():
    with pytest.raises(InputError, match="no dev sentences"):
        prepare([example(0, 3, np.random.default_rng(0))])


def test_prepare_refuses_an_empty_treebank():
    with pytest.raises(InputError, match="no train sentences"):
        prepare([])


# the whole table


def tables_of(words):
    """Compute all tables of section 5, from probes that are hardly trained."""
    schedule = Schedule(epochs=1, learning_rate=0.01, batch_size=32, min_updates=1)

    def store(seed):
        for sentence in examples(24, seed=seed):
            states = np.random.default_rng(sentence.index)
            hidden = states.standard_normal((LAYERS + 1, len(sentence), WIDTH))
            yield replace(sentence, hidden=hidden.astype(np.float16))

    stores = [list(store(seed)) for seed in range(4)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distance_probe, "SCHEDULE", schedule)
        patch.setattr(structural_probe, "SCHEDULE", schedule)
        patch.setattr(bilinear_probe, "SCHEDULE", schedule)
        return table3.table3(stores[0], stores[1:3], stores[3], words, seeds=2)


@pytest.fixture(scope="module")
def tables():
    return tables_of(vectors)


WITHOUT_CONTROL_TASK = {"Structural probe", "Right-branching", "Entropy-matched Attn + GloVe"}
WITH_CONTROL_TASK = {
    "Distances + GloVe",
    "Random-init Attn + GloVe",
    "Attn",
    "Attn + GloVe",
    "Bilinear probe on hidden states",
    "Random-init bilinear probe",
    "Entropy-matched bilinear probe",
}


def test_table3_scores_every_probe(tables):
    scores = tables["probes"].pivot(index="probe", columns="metric", values="value")
    assert set(scores.index) == WITH_CONTROL_TASK | WITHOUT_CONTROL_TASK
    assert set(scores.index[scores["selectivity"].notna()]) == WITH_CONTROL_TASK
    difference = scores[UAS_WITHOUT_PUNCTUATION] - scores["control task"]
    np.testing.assert_allclose(difference.dropna(), scores["selectivity"].dropna())


@pytest.mark.parametrize("model", ["trained", "random", "entropy-matched"])
def test_table3_compares_every_pair(tables, model):
    rows = rows_of_model(tables["probe_differences"], model)
    pairs = rows[["probe", "other"]].itertuples(index=False, name=None)
    assert tuple(pairs) == COMPARISONS


def test_table3_has_every_head_and_one_chosen_layer(tables):
    assert len(tables["probe_heads"]) == LAYERS * HEADS
    chosen = tables["probe_layers"].groupby("probe")["chosen"].sum()
    assert chosen.to_dict() == {"Structural probe": 1, "Bilinear probe": 1}


def test_table3_without_word_vectors_has_the_other_rows(tables):
    without = tables_of(None)
    assert without.keys() == tables.keys()
    assert set(without["probes"]["probe"]) == {
        "Structural probe",
        "Right-branching",
        "Random-init Attn",
        "Attn",
        "Entropy-matched Attn",
        "Bilinear probe on hidden states",
        "Random-init bilinear probe",
        "Entropy-matched bilinear probe",
    }
    scores = [table["probes"].query("probe == 'Attn'") for table in (tables, without)]
    pd.testing.assert_frame_equal(*(rows.reset_index(drop=True) for rows in scores))
    pairs = rows_of_model(without["probe_differences"])[["probe", "other"]].to_numpy().tolist()
    assert pairs == [["Attn", "Right-branching"]]
