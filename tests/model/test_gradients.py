from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from store_tools import token_records
from transformers import AutoTokenizer
from transformers.models.bert import modeling_bert

from helpers.data.records import roles
from helpers.errors import InputError, ModelError
from helpers.model.encoder import load
from helpers.model.forward import value_pass
from helpers.model.gradients import (
    IGNORED,
    KEY_TYPES,
    chosen_segments,
    gradient_importance,
    mask_tokens,
    objective,
)

STEP = 1e-4


@pytest.fixture
def exact_bert(tiny_folder):
    """A tiny BERT in float64, where finite differences are worth something."""
    encoder = load(str(tiny_folder("bert")), device="cpu")
    encoder.model.double()
    return encoder


@pytest.fixture
def sentence_encoder(tiny_folder, tmp_path):
    """The same without its head: the objective is contrastive."""
    load(str(tiny_folder("bert")), device="cpu").model.base_model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_folder("bert")).save_pretrained(tmp_path)
    encoder = load(str(tmp_path), device="cpu")
    encoder.model.double()
    return encoder


@pytest.fixture(params=["masked-lm", "contrastive"])
def encoder(request, exact_bert, sentence_encoder):
    found = exact_bert if request.param == "masked-lm" else sentence_encoder
    assert found.objective == request.param
    return found


@pytest.fixture
def nudged(monkeypatch):
    """Add a number to one attention weight, after the softmax and before the values.

    ``nudged[layer, example, head, query, key] = number``
    """
    numbers = {}

    def attend(module, query, key, value, attention_mask, scaling, dropout=0.0, **_):
        scores = query @ key.transpose(-1, -2) * scaling
        if attention_mask is not None:
            scores = scores + attention_mask
        weights = scores.softmax(dim=-1)
        for (layer, *place), number in numbers.items():
            if layer == module.layer_idx:
                weights[tuple(place)] += number
        return (weights @ value).transpose(1, 2).contiguous(), weights

    monkeypatch.setattr(modeling_bert, "eager_attention_forward", attend)
    return numbers


def finite_difference(encoder, records, nudged, place):
    losses = []
    for number in (STEP, -STEP):
        nudged[place] = number
        with torch.no_grad():
            losses.append(objective(encoder, records, np.random.default_rng(0))[0].sum().item())
        del nudged[place]
    return (losses[0] - losses[1]) / (2 * STEP)


def test_gradients_are_finite_differences(encoder, segments, nudged):
    records = token_records(encoder, segments)[:3]
    losses, inputs, maps = objective(encoder, records, np.random.default_rng(0))
    assert losses.dtype == torch.float64 and losses.shape == (3,)
    rng = np.random.default_rng(1)
    gradients = torch.autograd.grad(losses.sum(), maps)
    for layer in range(encoder.layers):
        for row, item in enumerate(inputs):
            n = len(item["input_ids"])
            place = (row, *(int(k) for k in rng.integers([encoder.heads, n, n])))
            expected = finite_difference(encoder, records, nudged, (layer, *place))
            found = gradients[layer][place].item()
            assert found == pytest.approx(expected, rel=1e-4, abs=1e-12)
            # In the last layer a token that is not masked has no loss to change.
            assert expected != 0 or layer == encoder.layers - 1


def test_importance_is_the_mean_absolute_gradient_of_each_type_of_key(encoder, segments):
    """Of two paragraphs the pairs of both count; per value: by the size of the key's vector."""
    records = token_records(encoder, segments)[:3]
    found = gradient_importance(encoder, records)
    losses, inputs, maps = objective(encoder, records, np.random.default_rng(0))
    np.testing.assert_allclose(found["losses"], losses.detach())
    gradients = torch.stack(torch.autograd.grad(losses.sum(), maps)).abs()
    with value_pass(encoder) as run:
        norms = torch.stack(run(inputs)[1])
    for example, (column, name) in product(range(3), enumerate(KEY_TYPES)):
        each, per_value = [], []
        for row in range(example, len(inputs), 3):
            ids = inputs[row]["input_ids"]
            tokens = encoder.tokenizer.convert_ids_to_tokens(ids)
            # A masked position is neither the word that stood there nor an ordinary one.
            own = roles(tokens, encoder.special_tokens).masks()[name]
            keys = np.flatnonzero(own & ~np.array(inputs[row].get("masked", own & False)))
            pairs = gradients[:, row, :, : len(ids), keys]
            each.append(pairs.flatten(1))
            per_value.append((pairs / norms[:, row][:, :, None, keys]).flatten(1))
        for measure, own in (("gradients", each), ("per_value", per_value)):
            expected = torch.cat(own, dim=1).mean(dim=1)  # NaN where there is no such key
            np.testing.assert_allclose(found[measure][example, :, column], expected, rtol=1e-5)


def test_batch_size_and_padding_do_not_change_the_importance(exact_bert, segments):
    records = token_records(exact_bert, segments)
    assert len({len(record["tokens"]) for record in records}) > 1
    found = [gradient_importance(exact_bert, records, batch_size=size) for size in (1, 2, 16)]
    for values in found[1:]:
        for name in ("gradients", "per_value"):
            np.testing.assert_allclose(values[name], found[0][name], rtol=1e-5)


# The objectives


@pytest.mark.parametrize("kind", ["masked-lm", "next-token"])
def test_a_language_models_loss_is_that_of_transformers(kind, exact_bert, tiny_encoder, segments):
    encoder = exact_bert if kind == "masked-lm" else tiny_encoder("gpt2")
    assert encoder.objective == kind
    for record in token_records(encoder, segments):
        loss, [inputs], _ = objective(encoder, [record], np.random.default_rng(2))
        ids = labels = np.array(encoder.tokenizer.convert_tokens_to_ids(record["tokens"]))
        types = {}
        if kind == "masked-lm":
            ids, labels = mask_tokens(encoder, ids, np.random.default_rng(2))
            hidden = np.array(record["tokens"])[labels != IGNORED]
            assert not {"[CLS]", "[SEP]"}.intersection(hidden)
            types = {"token_type_ids": torch.tensor([inputs["token_type_ids"]])}
        assert inputs["input_ids"] == ids.tolist()
        tensors = {"input_ids": torch.tensor(ids)[None], "labels": torch.tensor(labels)[None]}
        expected = encoder.model(**tensors, **types).loss
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_contrastive_loss_by_hand(sentence_encoder, segments):
    halves = []
    for texts in zip(*[own[:2] for own in segments.records()], strict=True):
        alone = [sentence_encoder.tokenizer(text, return_tensors="pt") for text in texts]
        with torch.no_grad():
            states = [sentence_encoder.model(**item).last_hidden_state[0] for item in alone]
        halves.append(np.array([own.mean(dim=0).numpy() for own in states]))
    first, second = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in halves)
    scores = 20 * first @ second.T
    expected = np.zeros(len(scores))
    for direction in (scores, scores.T):
        for k, row in enumerate(direction):
            expected[k] += (np.log(np.exp(row).sum()) - row[k]) / 2
    records = token_records(sentence_encoder, segments)
    losses, _, _ = objective(sentence_encoder, records, np.random.default_rng(0))
    np.testing.assert_allclose(losses.detach(), expected, rtol=1e-9)


def test_a_model_that_returns_copies_of_its_maps_is_refused(exact_bert, segments, monkeypatch):
    original = type(exact_bert.model).forward

    def forward(self, *args, **kwargs):
        output = original(self, *args, **kwargs)
        output.attentions = tuple(layer.clone() for layer in output.attentions)
        return output

    monkeypatch.setattr(type(exact_bert.model), "forward", forward)
    with pytest.raises(ModelError, match="no gradient"):
        gradient_importance(exact_bert, token_records(exact_bert, segments))


def test_a_contrastive_batch_has_two_segments_or_more(sentence_encoder, segments):
    records = token_records(sentence_encoder, segments)[:3]
    with pytest.raises(InputError, match="at least two segments"):
        gradient_importance(sentence_encoder, records[:1])
    joined = gradient_importance(sentence_encoder, records, batch_size=2)
    together = gradient_importance(sentence_encoder, records, batch_size=3)
    np.testing.assert_array_equal(joined["gradients"], together["gradients"])


def test_batches_are_of_one_article_where_it_has_enough():
    articles = ["a"] * 20 + ["b"] * 3 + ["c"] * 16 + ["d"] * 5
    chosen = chosen_segments(articles, 36, contrastive=True)
    assert chosen[:32] == [*range(16), *range(23, 39)]
    assert len(set(chosen)) == 36 and set(chosen[32:]) <= {*range(16, 23), *range(39, 44)}
    assert chosen_segments(articles, 3, contrastive=False) == [0, 21, 43]


# The masking rule


def test_of_the_chosen_80_percent_are_masked_10_swapped_and_10_kept(exact_bert):
    mask, vocabulary = exact_bert.tokenizer.mask_token_id, len(exact_bert.tokenizer)
    ids = np.full(20_000, vocabulary)  # which no swap gives
    corrupted, labels = mask_tokens(exact_bert, ids, np.random.default_rng(0))
    chosen = corrupted[labels != IGNORED]
    assert len(chosen) == 0.15 * len(ids)
    shares = [(chosen == mask).mean(), (chosen < vocabulary).mean(), (chosen == vocabulary).mean()]
    # 3,000 tokens: a standard error of 0.7 and 0.5 points
    assert shares == pytest.approx([0.8, 0.9, 0.1], abs=0.025)
    assert (corrupted[labels == IGNORED] == vocabulary).all()
    assert len(set(chosen.tolist())) > vocabulary / 2
