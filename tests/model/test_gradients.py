from __future__ import annotations

from collections import defaultdict
from itertools import product

import numpy as np
import pytest
import torch
from store_tools import token_records
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.models.bert import modeling_bert

from helpers.data.records import Visible, roles, visible_mask
from helpers.model.forward import value_pass
from helpers.model.gradients import (
    IGNORED,
    KEY_TYPES,
    choose_segments,
    gradient_importance,
    mask_tokens,
    score_gradients,
    training_losses,
)
from helpers.model.loading import load_model

STEP = 1e-4
ROUNDING = 2e-15 / STEP  # of a difference of losses in float64, for each unit of the loss


@pytest.fixture
def exact_bert(tiny_folder):
    """A tiny BERT in float64, where finite differences are worth something."""
    encoder = load_model(str(tiny_folder("bert")), device="cpu")
    encoder.model.double()
    return encoder


@pytest.fixture
def sentence_encoder(tiny_folder, tmp_path):
    """The same without its head: the objective is contrastive."""
    load_model(str(tiny_folder("bert")), device="cpu").model.base_model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_folder("bert")).save_pretrained(tmp_path)
    encoder = load_model(str(tmp_path), device="cpu")
    encoder.model.double()
    return encoder


@pytest.fixture(params=["masked-lm", "contrastive"])
def encoder(request, exact_bert, sentence_encoder):
    encoder = exact_bert if request.param == "masked-lm" else sentence_encoder
    assert encoder.objective == request.param
    return encoder


@pytest.fixture
def nudged(monkeypatch):
    """Add a number to one score before the softmax, or to one attention weight after it.

    ``nudged["scores" or "weights", layer, example, head, query, key] = number``
    """
    numbers = {}

    def attend(module, query, key, value, attention_mask, scaling, dropout=0.0, **_):
        scores = query @ key.transpose(-1, -2) * scaling
        if attention_mask is not None:
            scores = scores + attention_mask
        tensors = {"scores": scores.clone()}
        for (name, layer, *position), number in numbers.items():
            if (name, layer) == ("scores", module.layer_idx):
                tensors[name][tuple(position)] += number
        tensors["weights"] = tensors["scores"].softmax(dim=-1)
        for (name, layer, *position), number in numbers.items():
            if (name, layer) == ("weights", module.layer_idx):
                tensors[name][tuple(position)] += number
        weights = tensors["weights"]
        return (weights @ value).transpose(1, 2).contiguous(), weights

    monkeypatch.setattr(modeling_bert, "eager_attention_forward", attend)
    return numbers


def finite_difference(encoder, records, nudged, position):
    totals = []
    for number in (STEP, -STEP):
        nudged[position] = number
        with torch.no_grad():
            losses, _, _ = training_losses(encoder, records, np.random.default_rng(0))
        totals.append(losses.sum().item())
        del nudged[position]
    return (totals[0] - totals[1]) / (2 * STEP)


@pytest.mark.parametrize("name", ["weights", "scores"])
def test_gradients_are_those_of_finite_differences(name, encoder, segments, nudged):
    records = token_records(encoder, segments)[:3]
    losses, inputs, maps = training_losses(encoder, records, np.random.default_rng(0))
    assert losses.dtype == torch.float64 and losses.shape == (3,)
    rng = np.random.default_rng(1)
    gradients = torch.autograd.grad(losses.sum(), maps)
    for layer in range(encoder.layers):
        by_position = gradients[layer]
        if name == "scores":
            by_position = score_gradients(maps[layer].detach(), by_position)
        for row, example in enumerate(inputs):
            n = len(example["input_ids"])
            head, query, key = rng.integers([encoder.heads, n, n]).tolist()
            position = (name, layer, row, head, query, key)
            expected = finite_difference(encoder, records, nudged, position)
            gradient = by_position[row, head, query, key].item()
            error = ROUNDING * losses.sum().item()
            assert gradient == pytest.approx(expected, rel=1e-4, abs=error)
            # In the last layer a token that is not masked has no loss to change.
            assert expected != 0 or layer == encoder.layers - 1


@pytest.mark.parametrize("name", ["bert", "sentence", "gpt2", "mistral"])
def test_importance_is_the_mean_absolute_gradient_of_visible_pairs_by_type_of_key(
    name, exact_bert, sentence_encoder, tiny_encoder, segments
):
    """Pairs of both paragraphs count; "per_value" divides by the size of the key's vector."""
    encoders = {"bert": exact_bert, "sentence": sentence_encoder}
    encoder = encoders.get(name) or tiny_encoder(name)
    records = token_records(encoder, segments)[:3]
    importance = gradient_importance(encoder, records, seed=0)
    losses, inputs, maps = training_losses(encoder, records, np.random.default_rng(0))
    np.testing.assert_allclose(importance["losses"], losses.detach(), rtol=1e-6)
    n_candidates = 3 if encoder.objective == "contrastive" else len(encoder.tokenizer)
    np.testing.assert_allclose(importance["guesses"], np.log(n_candidates))
    gradients = torch.stack(torch.autograd.grad(losses.sum(), maps))
    with value_pass(encoder) as run:
        norms = torch.stack(run(inputs)[1])
    measures = {
        "gradients": gradients.abs(),
        "per_value": gradients.abs() / norms[:, :, :, None],
        "per_score": score_gradients(torch.stack(maps).detach(), gradients).abs(),
    }
    pairs_of = defaultdict(list)  # by measure, example, layer and type of key
    for row, model_input in enumerate(inputs):
        ids = model_input["input_ids"]
        tokens = encoder.tokenizer.convert_ids_to_tokens(ids)
        masks = roles(tokens, encoder.special_tokens).masks()
        masks["first"] = np.arange(len(ids)) == 0
        # A masked position is neither the word that stood there nor an ordinary one.
        is_key = ~np.array(model_input.get("masked", [False] * len(ids)))
        n_queries = len(ids) - (encoder.objective == "next-token")  # the last predicts nothing
        for layer, role in product(range(encoder.layers), masks):
            pairs = visible_mask(Visible(**encoder.visible[layer]), len(ids)) & masks[role] & is_key
            pairs[n_queries:] = False
            for measure, values in measures.items():
                of_row = values[layer, row, :, : len(ids), : len(ids)][:, torch.from_numpy(pairs)]
                pairs_of[measure, row % 3, layer, role].append(of_row.flatten())
    for (measure, example, layer, role), parts in pairs_of.items():
        value = importance[measure][example, layer, KEY_TYPES.index(role)]
        np.testing.assert_allclose(value, torch.cat(parts).mean(), rtol=1e-4)


@pytest.mark.parametrize("batch_size", [1, 2])
def test_importance_does_not_depend_on_batches_and_padding(
    batch_size, exact_bert, segments, monkeypatch
):
    records = token_records(exact_bert, segments)
    assert len({len(record["tokens"]) for record in records}) > 1
    expected = gradient_importance(exact_bert, records, seed=0)
    monkeypatch.setattr("helpers.model.gradients.BATCH", batch_size)
    importance = gradient_importance(exact_bert, records, seed=0)
    for name in ("gradients", "per_value"):
        np.testing.assert_allclose(importance[name], expected[name], rtol=1e-5)


# The objectives


def test_objective_of_masked_words_is_the_loss_of_transformers(exact_bert, segments):
    assert exact_bert.objective == "masked-lm"
    for record in token_records(exact_bert, segments):
        loss, [inputs], _ = training_losses(exact_bert, [record], np.random.default_rng(2))
        ids = np.array(exact_bert.tokenizer.convert_tokens_to_ids(record["tokens"]))
        corrupted, labels = mask_tokens(exact_bert, ids, np.random.default_rng(2))
        masked_tokens = np.array(record["tokens"])[labels != IGNORED]
        assert not {"[CLS]", "[SEP]"}.intersection(masked_tokens)
        assert inputs["input_ids"] == corrupted.tolist()
        expected = exact_bert.model(
            input_ids=torch.tensor(corrupted)[None],
            token_type_ids=torch.tensor([inputs["token_type_ids"]]),
            labels=torch.tensor(labels)[None],
        ).loss
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def unit_vectors(encoder, texts):
    """The mean of the last layer's states of each text, scaled to length one."""
    vectors = []
    for text in texts:
        with torch.no_grad():
            states = encoder.model(**encoder.tokenizer(text, return_tensors="pt"))
        vectors.append(states.last_hidden_state[0].mean(dim=0).numpy())
    vectors = np.array(vectors)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_objective_of_paragraphs_is_the_contrastive_loss_by_hand(sentence_encoder, segments):
    first = unit_vectors(sentence_encoder, [segment.first for segment in segments.records()])
    second = unit_vectors(sentence_encoder, [segment.second for segment in segments.records()])
    scores = 20 * first @ second.T
    expected = np.zeros(len(scores))
    for direction in (scores, scores.T):
        for k, row in enumerate(direction):
            expected[k] += (np.log(np.exp(row).sum()) - row[k]) / 2
    records = token_records(sentence_encoder, segments)
    losses, _, _ = training_losses(sentence_encoder, records, np.random.default_rng(0))
    np.testing.assert_allclose(losses.detach(), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("sizes", "count", "expected_size"),
    [
        ({"a": 20, "b": 3, "c": 16, "d": 5}, 36, 4),  # as many as there are articles
        ({letter: 1 + number % 5 for number, letter in enumerate("abcdefghijklmnopqrst")}, 48, 16),
        (dict.fromkeys("abcdefghijklmnopqrstuvwxyz", 9), 128, 16),
        ({"a": 50, "b": 1, "c": 1}, 30, 3),  # one batch, because two articles have one segment
        (dict.fromkeys("abcdefghijklmnopqrst", 4), 6, 6),
        ({"a": 7}, 5, 1),
    ],
)
def test_chosen_segments_by_contrast_are_batches_of_different_articles(sizes, count, expected_size):
    articles = [article for article, size in sizes.items() for _ in range(size)]
    chosen = choose_segments(articles, count, contrastive=True)
    assert len(chosen) == len(set(chosen)) <= count
    assert len(chosen) % expected_size == 0
    for start in range(0, len(chosen), expected_size):
        batch = [articles[index] for index in chosen[start : start + expected_size]]
        assert len(set(batch)) == expected_size


def test_chosen_segments_of_other_objectives_are_spread_evenly():
    articles = ["a"] * 20 + ["b"] * 3 + ["c"] * 16 + ["d"] * 5
    assert choose_segments(articles, 3, contrastive=False) == [0, 21, 43]


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_objective_of_the_next_token_is_the_loss_of_transformers(
    family, tiny_encoder, tiny_folder, segments
):
    encoder = tiny_encoder(family)
    assert encoder.objective == "next-token"
    plain = AutoModelForCausalLM.from_pretrained(tiny_folder(family)).eval()
    records = token_records(encoder, segments)
    losses, _, _ = training_losses(encoder, records, np.random.default_rng(0))
    for record, loss in zip(records, losses, strict=True):
        ids = torch.tensor([encoder.tokenizer.convert_tokens_to_ids(record["tokens"])])
        with torch.no_grad():
            expected = plain(ids, labels=ids).loss
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


# The masking rule


def test_mask_tokens_masks_80_percent_swaps_10_and_keeps_10(exact_bert):
    mask_id = exact_bert.tokenizer.mask_token_id
    vocabulary = len(exact_bert.tokenizer)
    unknown_id = vocabulary  # which no swap gives
    ids = np.full(20_000, unknown_id)
    corrupted, labels = mask_tokens(exact_bert, ids, np.random.default_rng(0))
    chosen = corrupted[labels != IGNORED]
    assert len(chosen) == 0.15 * len(ids)
    # 3,000 tokens: standard errors of 0.7 percentage points and less
    assert (chosen == mask_id).mean() == pytest.approx(0.8, abs=0.025)
    assert (chosen < vocabulary).mean() == pytest.approx(0.9, abs=0.025)  # masked or swapped
    assert (chosen == unknown_id).mean() == pytest.approx(0.1, abs=0.025)
    assert len(set(chosen.tolist())) > vocabulary / 2
    assert (corrupted[labels == IGNORED] == unknown_id).all()
