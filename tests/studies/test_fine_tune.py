"""Fine-tuning learns, repeats itself to the last bit, and is found again in the cache."""

import json
import math

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch.nn import functional as F

from helpers.errors import ModelError, StoreError
from helpers.studies import fine_tune as finetune
from helpers.studies.classifier import batches, new_classifier, predict, task_inputs
from helpers.studies.fine_tune import FineTuned, Recipe, fine_tune
from helpers.studies.tasks import Pair, Task


def toy_task(train=64, test=16, name="toy"):
    """Is it about cats or about dogs?  The other words say nothing."""
    rng = np.random.default_rng(0)

    def pairs(count):
        for number in range(count):
            words = [("cat", "dog")[number % 2]] * 3 + ["the", "rain"] * rng.integers(0, 3)
            yield Pair(" ".join(rng.permutation(words)), None, number % 2)

    return Task(name, ("cats", "dogs"), tuple(pairs(train)), tuple(pairs(test)))


def tune(encoder, root, task=None, **settings):
    recipe = Recipe(**{"epochs": 6, "max_tokens": 32, "learning_rate": 3e-3, **settings})
    return fine_tune([FineTuned(encoder, task or toy_task(), recipe, root)])[0]


def weights(run):
    saved = load_file(run.folder / "final.safetensors")
    return {name: tensor.clone() for name, tensor in saved.items()}  # the file may change


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


@pytest.fixture
def encoder(tiny_encoder):
    return tiny_encoder("bert")


# Inputs


def test_two_texts_are_cut_at_their_ends_the_longer_one_first(encoder):
    pairs = [Pair("cat dog", "dog " * 30, 0), Pair("dog " * 30, "cat " * 30, 0)]
    (short, long) = task_inputs(encoder, pairs, 16)
    tokens = encoder.tokenizer.convert_ids_to_tokens(short["input_ids"])
    assert tokens[:1] + tokens[-1:] == ["[CLS]", "[SEP]"] and len(tokens) == 16
    assert tokens.count("[SEP]") == 2
    first = encoder.tokenizer.tokenize("cat dog")
    assert tokens[1 : 1 + len(first)] == first
    assert short["token_type_ids"] == [0] * (len(first) + 2) + [1] * (14 - len(first))
    assert sum(long["token_type_ids"]) == 8  # 13 tokens of text: 6 and 7, and [SEP]
    assert len(long["input_ids"]) == 16


def test_inputs_are_those_of_the_tokenizer_where_nothing_is_cut(encoder):
    pair = Pair("The cat sat.", "It was a lazy cat.", 0)
    (own,) = task_inputs(encoder, [pair], 60)
    theirs = encoder.tokenizer(pair.first, pair.second)
    assert own["input_ids"] == theirs["input_ids"]
    assert own["token_type_ids"] == theirs["token_type_ids"]


@pytest.mark.parametrize("max_tokens", [4, 65])
def test_lengths_that_the_model_does_not_take(encoder, max_tokens):
    with pytest.raises(ModelError, match="it takes 8 to 64"):
        task_inputs(encoder, [], max_tokens)


def test_every_example_is_in_one_batch_with_its_own_label(encoder):
    pairs = toy_task().train
    seen = []
    for batch, labels, order in batches(encoder, pairs, max_tokens=32, batch_size=7):
        seen += order.tolist()
        assert labels.tolist() == [pairs[i].label for i in order]
        assert batch["attention_mask"].sum(dim=1).tolist() == [
            len(task_inputs(encoder, [pairs[i]], 32)[0]["input_ids"]) for i in order
        ]
    assert sorted(seen) == list(range(len(pairs)))


# Classifier


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "gpt2", "t5", "deberta_v2"])
def test_logits_are_the_head_over_the_vector_of_each_text(tiny_encoder, family):
    encoder = tiny_encoder(family)
    classifier = new_classifier(encoder, 3, seed=1)
    pairs = [Pair("The cat sat on the mat.", None, 0), Pair("She doesn't.", None, 2)]
    ((batch, _, order),) = batches(encoder, pairs, max_tokens=48)
    logits = classifier(**batch)
    assert logits.shape == (2, 3)
    for row, index in enumerate(order):
        (inputs,) = task_inputs(encoder, [pairs[index]], 48)
        alone = torch.tensor([inputs["input_ids"]])
        states = encoder.model.base_model(input_ids=alone).last_hidden_state[0]
        vector = states[0] if encoder.objective == "masked-lm" else states.mean(dim=0)
        expected = F.linear(vector, classifier.head.weight, classifier.head.bias)
        torch.testing.assert_close(logits[row], expected, atol=1e-4, rtol=1e-4)


def test_a_new_classifier_leaves_the_encoder_alone(encoder):
    classifier = new_classifier(encoder, 2, seed=0)
    assert not any(p.requires_grad for p in encoder.model.parameters())
    frozen = [name for name, p in classifier.named_parameters() if not p.requires_grad]
    assert frozen == ["encoder.embeddings.word_embeddings.weight"]
    assert torch.equal(classifier.head.weight, new_classifier(encoder, 2, seed=0).head.weight)
    assert not torch.equal(classifier.head.weight, new_classifier(encoder, 2, seed=1).head.weight)


# Training


def test_it_learns_and_says_how_well(encoder, tmp_path):
    run = tune(encoder, tmp_path)
    assert run.accuracy > 0.9
    assert run.steps == 24
    predicted = predict(run.classifier, encoder, run.task.test, max_tokens=32)
    assert predicted.tolist() == run.predictions.tolist()
    assert run.accuracy == np.mean(predicted == [pair.label for pair in run.task.test])


def test_training_is_that_of_a_plain_loop(encoder, tmp_path):
    """One epoch of two batches, against AdamW written out."""
    task = toy_task(train=2)
    settings = {"epochs": 2, "batch_size": 2, "learning_rate": 1e-2}
    run = tune(encoder, tmp_path, task, **settings)
    classifier = new_classifier(encoder, 2, seed=0)
    parameters = [p for p in classifier.parameters() if p.requires_grad]
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]
    ((batch, labels, _),) = batches(encoder, task.train, max_tokens=32)
    for step, rate in ((1, 1e-2), (2, 1e-2)):  # of two steps the first is warm-up
        loss = F.cross_entropy(classifier(**batch), labels)
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        norm = math.sqrt(sum(float(g.square().sum()) for g in gradients if g is not None))
        with torch.no_grad():
            for p, g, (mean, square) in zip(parameters, gradients, moments, strict=True):
                if g is None:
                    continue
                g = g * min(1, 1 / (norm + 1e-6))
                mean.mul_(0.9).add_(0.1 * g)
                square.mul_(0.999).add_(0.001 * g * g)
                if p.ndim > 1:
                    p.mul_(1 - rate * 0.01)
                size = mean / (1 - 0.9**step) / ((square / (1 - 0.999**step)).sqrt() + 1e-8)
                p.sub_(rate * size)
    trained = dict(run.classifier.named_parameters())
    for name, expected in classifier.named_parameters():
        if name.endswith("key.bias"):
            continue  # softmax does not see it: its gradient is rounding, which AdamW scales up
        torch.testing.assert_close(trained[name], expected.detach(), atol=2e-5, rtol=1e-4)


def test_each_epoch_meets_each_example_once(encoder, tmp_path, monkeypatch):
    met = []
    real = finetune.padded_batch

    def watched(encoder, inputs, labels, indices):
        met.append(indices)
        return real(encoder, inputs, labels, indices)

    monkeypatch.setattr(finetune, "padded_batch", watched)
    tune(encoder, tmp_path, epochs=2, batch_size=10)
    epochs = [sorted(i for batch in part for i in batch) for part in (met[:7], met[7:])]
    assert epochs == [list(range(64))] * 2
    assert met[:7] != met[7:]


def test_the_seed_decides_to_the_last_bit(encoder, tmp_path):
    one = tune(encoder, tmp_path / "a", epochs=1)
    assert same(weights(one), weights(tune(encoder, tmp_path / "b", epochs=1)))
    assert not same(weights(one), weights(tune(encoder, tmp_path / "c", epochs=1, seed=1)))


def test_side_by_side_gives_what_each_run_gives_alone(encoder, tiny_encoder, tmp_path):
    torch.set_num_threads(2)  # put back by the fixture of tiny models
    recipe = Recipe(epochs=1, max_tokens=32)
    jobs = [(encoder, toy_task()), (tiny_encoder("roberta"), toy_task(name="other"))]
    both = fine_tune([FineTuned(*job, recipe, tmp_path / "both") for job in jobs])
    assert torch.get_num_threads() == 2
    for job, run in zip(jobs, both, strict=True):
        (alone,) = fine_tune([FineTuned(*job, recipe, tmp_path / "alone")])
        assert same(weights(run), weights(alone))


def test_a_loss_that_is_no_number(encoder, tmp_path):
    with pytest.raises(ModelError, match=r"task 'toy': the loss of step .* smaller learning rate"):
        tune(encoder, tmp_path, learning_rate=1e30)
    assert not [path for path in tmp_path.rglob("*") if path.is_dir() and path.stem != "fine-tuned"]


def test_float16_encoders_are_trained_in_float32(tiny_folder, tmp_path):
    from helpers.model.encoder import load

    half = load(str(tiny_folder("bert")), device="cpu", dtype="bfloat16")
    run = tune(half, tmp_path, epochs=1)
    assert {tensor.dtype for tensor in weights(run).values()} == {torch.float32}


# Cache


def test_a_finished_run_is_found_again(encoder, tmp_path, monkeypatch):
    first = tune(encoder, tmp_path, epochs=1, checkpoints=2)
    monkeypatch.setattr(finetune, "_train", print)  # which would fill no folder
    again = tune(encoder, tmp_path, epochs=1, checkpoints=2)
    assert again.folder == first.folder and again.accuracy == first.accuracy
    saved = weights(first)
    for name, parameter in again.classifier.named_parameters():
        if name in saved:
            assert torch.equal(parameter, saved[name])


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1}, {"epochs": 2}, {"max_tokens": 31}, {"batch_size": 8}, {"checkpoints": 1},
        {"learning_rate": 1e-3}, {"task": toy_task(train=62)},
    ],
)  # fmt: skip
def test_whatever_matters_makes_another_run(encoder, tmp_path, change, monkeypatch):
    monkeypatch.setattr(finetune, "train_once", lambda *_, **__: None)
    settings = {"task": toy_task(), "epochs": 1}
    base = tune(encoder, tmp_path, **settings)
    assert tune(encoder, tmp_path, **settings).folder == base.folder
    assert tune(encoder, tmp_path, **(settings | change)).folder != base.folder


def test_checkpoints_are_the_states_on_the_way(encoder, tmp_path):
    run = tune(encoder, tmp_path, epochs=5, checkpoints=10)  # 20 steps
    names = {path.name for path in run.folder.glob("*.safetensors")}
    assert names == {f"checkpoint-{k:02d}-of-10.safetensors" for k in range(1, 10)} | {
        "final.safetensors"
    }
    start = dict(new_classifier(encoder, 2, seed=0).named_parameters())
    moved = [
        sum(
            float((p - start[n]).detach().square().sum())
            for n, p in run.checkpoint(k).named_parameters()
        )
        for k in range(11)
    ]
    assert moved[0] == 0 and moved == sorted(moved)
    final = dict(run.checkpoint(10).named_parameters())
    assert all(torch.equal(p, final[n]) for n, p in run.classifier.named_parameters())
    with pytest.raises(IndexError):
        run.checkpoint(11)


def test_more_checkpoints_than_steps(encoder, tmp_path):
    run = tune(encoder, tmp_path, toy_task(train=8), epochs=2, checkpoints=10)  # 2 steps
    assert [run.checkpoint(k).head.bias.shape for k in range(11)] == [(2,)] * 11


def test_an_interrupted_run_leaves_nothing_and_starts_anew(encoder, tmp_path, monkeypatch):
    whole = tune(encoder, tmp_path / "whole", epochs=2)
    real, steps = finetune.padded_batch, iter(range(5))

    def interrupted(*arguments):
        if next(steps, None) is None:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(finetune, "padded_batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tune(encoder, tmp_path / "part", epochs=2)
    assert not list((tmp_path / "part").rglob("*.safetensors"))
    monkeypatch.undo()
    assert same(weights(tune(encoder, tmp_path / "part", epochs=2)), weights(whole))


def test_what_a_killed_run_left_is_cleared_away(encoder, tmp_path):
    run = tune(encoder, tmp_path, epochs=1)
    expected = weights(run)
    leftover = run.folder.rename(run.folder.with_name(f"{run.folder.name}.tmp"))
    (leftover / "final.safetensors").write_bytes(b"half")
    assert same(weights(tune(encoder, tmp_path, epochs=1)), expected)
    assert not leftover.exists()


def test_damaged_weights_are_named(encoder, tmp_path):
    run = tune(encoder, tmp_path, epochs=1)
    path = run.folder / "final.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(StoreError, match=r"final\.safetensors: .*remove the folder"):
        _ = tune(encoder, tmp_path, epochs=1).classifier


def test_the_facts_are_readable(encoder, tmp_path):
    run = tune(encoder, tmp_path, epochs=1)
    facts = json.loads((run.folder / "run.json").read_text())
    assert facts["settings"]["model"]["weights_sha256"] == encoder.identity["weights_sha256"]
    assert facts["settings"]["recipe"]["epochs"] == 1


def test_the_fine_tuned_encoder_gives_the_new_maps(encoder, tmp_path):
    tuned = tune(encoder, tmp_path, epochs=1).fine_tuned_encoder()
    assert tuned.identity["fine_tuned"] and "fine_tuned" not in encoder.identity
    ids = torch.tensor([tuned.tokenizer("the cat sat")["input_ids"]])
    before, after = (
        e.model.base_model(input_ids=ids, output_attentions=True).attentions
        for e in (encoder, tuned)
    )
    assert len(after) == encoder.layers
    assert not torch.allclose(before[-1], after[-1])
    assert isinstance(tuned.model, transformers.PreTrainedModel)
