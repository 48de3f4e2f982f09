"""Training learns, repeats itself to the last bit, and is found again in the cache."""

import json
import math
from dataclasses import replace
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from helpers.errors import InputError, ModelError
from helpers.studies import fine_tune as finetune
from helpers.studies.classifier import Classifier, batches, outputs
from helpers.studies.fine_tune import FineTuned, Recipe
from helpers.studies.tasks import Pair, Task


@pytest.fixture(autouse=True)
def environment(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path / "cache"))
    return monkeypatch


def toy_task(train=64, test=16, name="toy"):
    """Is it about cats or about dogs?  The other words say nothing."""
    rng = np.random.default_rng(0)

    def pairs(count):
        for number in range(count):
            words = [("cat", "dog")[number % 2]] * 3 + ["the", "rain"] * rng.integers(0, 3)
            yield Pair(" ".join(rng.permutation(words)), None, number % 2)

    return Task(name, ("cats", "dogs"), tuple(pairs(train)), tuple(pairs(test)))


def tune(encoder, task=None, **settings):
    recipe = Recipe(**{"epochs": 6, "max_tokens": 32, "learning_rate": 3e-3, **settings})
    return finetune.fine_tune([FineTuned(encoder, task or toy_task(), recipe)])[0]


def weights(run):
    saved = load_file(run.folder / "final.safetensors")
    return {name: tensor.clone() for name, tensor in saved.items()}  # the file may change


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def test_the_learning_rate_rises_over_a_tenth_and_falls_to_nothing():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    rates = [*map(finetune.warmup_and_decay(optimizer, 100).lr_lambdas[0], range(100))]
    assert rates[:3] == [0.1, 0.2, 0.3] and max(rates) == rates[9] == rates[10] == 1
    assert rates[55] == 0.5 and rates[-1] == pytest.approx(1 / 90)
    assert finetune.warmup_and_decay(optimizer, 1).lr_lambdas[0](0) == 1


def test_each_epoch_meets_each_example_once_in_another_order():
    lengths, recipe = list(range(45)), Recipe(epochs=2, batch_size=10)
    found = list(finetune.shuffled_epochs(recipe, lengths))
    assert len(found) == recipe.steps(45) == 10
    epochs = [sorted(chain.from_iterable(part)) for part in (found[:5], found[5:])]
    assert epochs == [lengths] * 2 and found[:5] != found[5:]
    assert found != list(finetune.shuffled_epochs(replace(recipe, seed=1), lengths))


def test_training_is_that_of_a_plain_loop(encoder):
    """One epoch of two batches, against AdamW written out."""
    task = toy_task(train=2)
    settings = {"epochs": 2, "batch_size": 2, "learning_rate": 1e-2}
    run = tune(encoder, task, **settings)
    classifier = Classifier(encoder, 2, seed=0)
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


def test_side_by_side_gives_what_each_run_gives_alone(encoder, tiny_encoder, tmp_path, environment):
    torch.set_num_threads(2)  # put back by the fixture of all tests
    recipe = Recipe(epochs=1, max_tokens=32)
    jobs = [(encoder, toy_task()), (tiny_encoder("roberta"), toy_task(name="other"))]
    both = [weights(run) for run in finetune.fine_tune([FineTuned(*job, recipe) for job in jobs])]
    assert torch.get_num_threads() == 2
    environment.setenv("ATTENTION_CACHE", str(tmp_path / "alone"))
    for job, found in zip(jobs, both, strict=True):
        assert same(found, weights(finetune.fine_tune([FineTuned(*job, recipe)])[0]))
        other = FineTuned(*job, replace(recipe, seed=1))
        assert not same(found, weights(finetune.fine_tune([other])[0]))


def test_a_loss_that_is_no_number(encoder, tmp_path):
    with pytest.raises(ModelError, match=r"task 'toy': the loss of step .* smaller learning rate"):
        tune(encoder, learning_rate=1e30)
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_finished_run_has_learned_and_is_found_again(encoder, monkeypatch):
    first = tune(encoder)
    monkeypatch.setattr(finetune, "_train", print)  # which would fill no folder
    again = tune(encoder)
    assert again.folder == first.folder and again.accuracy == first.accuracy
    predicted = outputs(again.classifier, encoder, again.task.test, max_tokens=32).argmax(axis=1)
    assert predicted.tolist() == again.predictions.tolist()
    right = [pair.label for pair in again.task.test]
    assert again.accuracy == np.mean(predicted == right) > 0.9
    tuned, ids = again.fine_tuned_encoder(), torch.tensor([[2, 7, 8, 3]])
    assert tuned.identity["fine_tuned"] and "fine_tuned" not in encoder.identity
    before, after = (e.model(input_ids=ids, output_attentions=True) for e in (encoder, tuned))
    assert not torch.allclose(before.attentions[-1], after.attentions[-1])


def test_whatever_matters_makes_another_run(encoder):
    recipe, tasks = Recipe(), (toy_task(), toy_task(train=62))
    other = {"seed": 1, "epochs": 1, "max_tokens": 31, "batch_size": 8, "learning_rate": 1e-3}
    recipes = [recipe, *(replace(recipe, **{name: own}) for name, own in other.items())]
    runs = [FineTuned(encoder, task, own) for task in tasks for own in recipes]
    assert len({run.folder for run in runs}) == len(runs)
    assert runs[0].folder == FineTuned(encoder, toy_task(), Recipe()).folder


def test_what_is_interrupted_or_damaged_is_trained_again(encoder, tmp_path, environment, capsys):
    whole = weights(tune(encoder, epochs=2))
    environment.setenv("ATTENTION_CACHE", str(tmp_path / "part"))
    real, steps = finetune.padded, iter(range(5))

    def interrupted(*arguments):
        if next(steps, None) is None:
            raise KeyboardInterrupt
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetune, "padded", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tune(encoder, epochs=2)
    assert not list((tmp_path / "part").rglob("*.safetensors"))
    run = tune(encoder, epochs=2)
    assert same(weights(run), whole)
    path = run.folder / "final.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert same(weights(tune(encoder, epochs=2)), whole)
    accuracy, path = run.accuracy, run.folder / "predictions.json"
    path.write_text(json.dumps((1 - run.predictions).tolist()))
    capsys.readouterr()
    assert tune(encoder, epochs=2).accuracy == accuracy
    shown = capsys.readouterr().err.splitlines()
    assert [line for line in shown if "made again" in line] == [f"{path}: changed; made again"]


# The runs of the notebooks


def test_a_task_of_the_users_is_two_files(tmp_path):
    (tmp_path / "train.tsv").write_text("the cat\tcats\nthe dog\tdogs\n" * 12)
    (tmp_path / "test.tsv").write_text("a cat\tcats\na dog\tdogs\nrain\tdogs\n")
    files = f"{tmp_path / 'train.tsv'}, {tmp_path / 'test.tsv'}"
    (own,) = finetune.tasks_of(files, "", examples=12, seed=0)
    assert (own.name, len(own.train), len(own.test)) == ("train", 12, 3)
    for wrong in ("one.tsv", "a,b,c"):
        with pytest.raises(InputError, match=r"write TRAIN\.tsv,TEST\.tsv"):
            finetune.tasks_of(wrong, "", examples=12, seed=0)


def planned(tiny_encoder, names, monkeypatch):
    """The seeds that each task is fine-tuned with, the control's last, and their lengths."""
    monkeypatch.setattr(finetune, "fine_tune", lambda runs: runs)
    monkeypatch.setattr(finetune, "wikipedia_tasks", lambda *_, **__: names)
    some, encoder = finetune.tasks_of("", "", examples=12, seed=0), tiny_encoder("bert")
    found = finetune.fine_tune_tasks(encoder, encoder, some, max_tokens=128, seed=3)
    every = [*chain(*found.seeds), *found.random]
    seeds = [[run.recipe.seed for run in runs] for runs in (*found.seeds, found.random)]
    return [run.task.name for run in found.random], seeds, {r.recipe.max_tokens for r in every}


def test_seeds_of_each_task_and_fewer_of_fewer_tasks_in_the_small_profile(
    tiny_encoder, monkeypatch
):
    names = (finetune.NEXT, finetune.SHIFT, finetune.NUMBER)
    tasks = [replace(toy_task(), name=name) for name in names]
    seeds = [[3], [3, 4, 5, 6, 7], [3, 4, 5], [3] * 3]
    assert planned(tiny_encoder, tasks, monkeypatch) == (list(names), seeds, {64})
    monkeypatch.setenv("ATTENTION_PROFILE", "small")
    small = [finetune.NEXT, finetune.NUMBER], [[3], [3, 4], [3] * 2], {32}
    assert planned(tiny_encoder, tasks, monkeypatch) == small


@pytest.mark.parametrize(("right", "median"), [([0.7, 0.9, 0.8], 2), ([0.9, 0.8], 1), ([0.5], 0)])
def test_the_median_run_is_shown(right, median):
    runs = [SimpleNamespace(accuracy=accuracy) for accuracy in right]
    assert finetune.Runs([runs, runs[:1]], []).median == [runs[median], runs[0]]
