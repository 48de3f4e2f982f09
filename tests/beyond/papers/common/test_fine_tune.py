"""Training: the schedule, batches, a step by hand, repeatability, and the cache of runs."""

import math
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from beyond.papers.common import fine_tune as finetune
from beyond.papers.common.classifier import Classifier, batches, outputs
from beyond.papers.common.fine_tune import FineTuningRun, Recipe
from beyond.papers.common.tasks import Pair, Task
from beyond.papers.common.wikipedia_tasks import NEXT, NUMBER, SHIFT
from helpers.errors import InputError, ModelError


@pytest.fixture(autouse=True)
def environment(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path / "cache"))
    return monkeypatch


def toy_task(train=64, test=16, name="toy"):
    """Make a task: is the text about cats or about dogs?  Its other words do not matter."""
    rng = np.random.default_rng(0)

    def make_pairs(count):
        pairs = []
        for number in range(count):
            label = number % 2
            animal = ("cat", "dog")[label]
            words = [animal] * 3 + ["the", "rain"] * rng.integers(0, 3)
            pairs.append(Pair((" ".join(rng.permutation(words)),), label))
        return tuple(pairs)

    return Task(name, ("cats", "dogs"), train=make_pairs(train), test=make_pairs(test))


def train_run(encoder, task=None, **settings):
    recipe = Recipe(**{"epochs": 6, "max_tokens": 32, "learning_rate": 3e-3, **settings})
    (run,) = finetune.fine_tune([FineTuningRun(encoder, task or toy_task(), recipe)])
    return run


def read_weights(run):
    saved = load_file(run.folder / "final.safetensors")
    return {name: tensor.clone() for name, tensor in saved.items()}  # the file may change


def are_equal(first, second):
    if first.keys() != second.keys():
        return False
    return all(torch.equal(first[name], second[name]) for name in first)


def test_warmup_and_decay_rises_over_a_tenth_of_the_steps_and_falls_to_zero():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    factor = finetune.warmup_and_decay(optimizer, 100).lr_lambdas[0]
    assert [factor(step) for step in (0, 1, 2)] == [0.1, 0.2, 0.3]
    assert factor(9) == factor(10) == 1
    assert factor(55) == 0.5
    assert factor(99) == pytest.approx(1 / 90)


def test_warmup_and_decay_of_a_single_step():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    factor = finetune.warmup_and_decay(optimizer, 1).lr_lambdas[0]
    assert factor(0) == 1


def test_shuffled_epochs_have_each_example_once_in_a_new_order():
    lengths = list(range(45))
    recipe = Recipe(epochs=2, batch_size=10)
    epochs = list(finetune.shuffled_epochs(recipe, lengths))
    assert len(epochs) == 10
    first_epoch = epochs[:5]
    second_epoch = epochs[5:]
    assert sorted(chain.from_iterable(first_epoch)) == lengths
    assert sorted(chain.from_iterable(second_epoch)) == lengths
    assert first_epoch != second_epoch
    assert epochs != list(finetune.shuffled_epochs(replace(recipe, seed=1), lengths))


def test_fine_tune_takes_the_steps_of_adamw_written_out(encoder):
    """Two epochs of one batch, compared with AdamW written out."""
    task = toy_task(train=2)
    run = train_run(encoder, task, epochs=2, batch_size=2, learning_rate=1e-2)
    classifier = Classifier(encoder, 2, seed=0)
    parameters = [p for p in classifier.parameters() if p.requires_grad]
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]
    ((batch, labels, _),) = batches(encoder, task.train, max_tokens=32)
    for step, rate in ((1, 1e-2), (2, 1e-2)):  # the first of two steps is the warm-up
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
            continue  # softmax cancels it, so its gradient is rounding, which AdamW scales up
        torch.testing.assert_close(trained[name], expected.detach(), atol=2e-5, rtol=1e-4)


def test_fine_tune_of_parallel_runs_equals_each_run_by_itself(
    encoder, tiny_encoder, tmp_path, environment
):
    torch.set_num_threads(2)  # the fixture of all tests sets it back
    recipe = Recipe(epochs=1, max_tokens=32)
    runs = [
        FineTuningRun(encoder, toy_task(), recipe),
        FineTuningRun(tiny_encoder("roberta"), toy_task(name="other"), recipe),
    ]
    parallel = [read_weights(run) for run in finetune.fine_tune(runs)]
    assert torch.get_num_threads() == 2
    environment.setenv("ATTENTION_CACHE", str(tmp_path / "alone"))
    for run, weights in zip(runs, parallel, strict=True):
        same_run = FineTuningRun(run.encoder, run.task, recipe)
        assert are_equal(weights, read_weights(finetune.fine_tune([same_run])[0]))
        other_seed = FineTuningRun(run.encoder, run.task, replace(recipe, seed=1))
        assert not are_equal(weights, read_weights(finetune.fine_tune([other_seed])[0]))


def test_fine_tune_refuses_a_loss_that_is_not_finite(encoder, tmp_path):
    with pytest.raises(ModelError, match=r"task 'toy': the loss of step .* smaller learning rate"):
        train_run(encoder, learning_rate=1e30)
    assert not list(tmp_path.rglob("*.safetensors"))


def test_fine_tune_reads_a_finished_run_from_the_cache(encoder, monkeypatch):
    trained = train_run(encoder)
    monkeypatch.setattr(finetune, "_train", print)  # which would write no files
    cached = train_run(encoder)
    assert cached.folder == trained.folder
    assert np.array_equal(cached.predictions, trained.predictions)


def test_fine_tuned_run_predicts_the_labels_that_it_has_learned(encoder):
    run = train_run(encoder)
    logits = outputs(run.classifier, encoder, run.task.test, max_tokens=32)
    predicted = logits.argmax(axis=1)
    assert predicted.tolist() == run.predictions.tolist()
    assert np.mean(predicted == run.labels) > 0.9


def test_fine_tuned_encoder_has_other_maps_and_another_identity(encoder):
    tuned = train_run(encoder).fine_tuned_encoder()
    assert tuned.key["fine_tuned"]
    assert "fine_tuned" not in encoder.key
    ids = torch.tensor([[2, 7, 8, 3]])
    before = encoder.model(input_ids=ids, output_attentions=True).attentions[-1]
    after = tuned.model(input_ids=ids, output_attentions=True).attentions[-1]
    assert not torch.allclose(before, after)


def test_folder_depends_on_every_setting_and_on_the_task(encoder):
    recipe = Recipe()
    changed_settings = {
        "seed": 1, "epochs": 1, "max_tokens": 31, "batch_size": 8, "learning_rate": 1e-3,
    }  # fmt: skip
    recipes = [recipe]
    for name, value in changed_settings.items():
        recipes.append(replace(recipe, **{name: value}))
    runs = []
    for task in (toy_task(), toy_task(train=62)):
        runs += [FineTuningRun(encoder, task, each_recipe) for each_recipe in recipes]
    assert len({run.folder for run in runs}) == len(runs)
    assert FineTuningRun(encoder, toy_task(), Recipe()).folder in {run.folder for run in runs}


def test_fine_tune_trains_an_interrupted_run_again(encoder, tmp_path, environment):
    expected = read_weights(train_run(encoder, epochs=2))
    environment.setenv("ATTENTION_CACHE", str(tmp_path / "interrupted"))
    padded = finetune.padded
    steps = iter(range(5))

    def interrupted(*arguments):
        if next(steps, None) is None:
            raise KeyboardInterrupt
        return padded(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetune, "padded", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train_run(encoder, epochs=2)
    assert not list((tmp_path / "interrupted").rglob("*.safetensors"))
    assert are_equal(read_weights(train_run(encoder, epochs=2)), expected)


# The runs of the notebooks


@pytest.fixture
def task_files(tmp_path):
    train = tmp_path / "train.tsv"
    test = tmp_path / "test.tsv"
    train.write_text("the cat\tcats\nthe dog\tdogs\n" * 12)
    test.write_text("a cat\tcats\na dog\tdogs\nrain\tdogs\n")
    return f"{train}, {test}"


def test_tasks_of_two_files_is_their_task_with_a_sample_of_examples(task_files):
    (task,) = finetune.load_tasks(task_files, "", examples=12, seed=0, quick=False)
    assert (len(task.train), len(task.test)) == (12, 3)


@pytest.mark.parametrize("setting", ["one.tsv", "a,b,c"])
def test_tasks_of_one_or_three_files_is_refused(setting):
    with pytest.raises(InputError, match=r"task .*TRAIN\.tsv,TEST\.tsv"):
        finetune.load_tasks(setting, "", examples=12, seed=0, quick=False)


NAMES = (NEXT, SHIFT, NUMBER)


@pytest.fixture
def planned_runs(tiny_encoder, monkeypatch):
    """Plan the runs of the three tasks without training them."""

    def plan(*, quick=False):
        tasks = [replace(toy_task(), name=name) for name in NAMES]
        monkeypatch.setattr(finetune, "fine_tune", lambda runs: runs)
        monkeypatch.setattr(finetune, "wikipedia_tasks", lambda *_, **__: tasks)
        selected = finetune.load_tasks("", "", examples=12, seed=0, quick=quick)
        return finetune.fine_tune_tasks(tiny_encoder("bert"), selected, max_tokens=128, seed=3)

    return plan


def test_fine_tune_tasks_trains_each_task_once(planned_runs):
    runs = planned_runs()
    assert [run.task.name for run in runs] == list(NAMES)
    assert {(run.recipe.seed, run.recipe.max_tokens) for run in runs} == {(3, 64)}


def test_fine_tune_tasks_in_a_quick_run_has_fewer_tasks(planned_runs):
    runs = planned_runs(quick=True)
    assert [run.task.name for run in runs] == [NEXT, NUMBER]


def test_fine_tune_seeds_begins_with_the_run_that_it_is_given(planned_runs):
    run = planned_runs()[1]
    of_seeds = finetune.fine_tune_seeds(run)
    assert [of_seed.recipe.seed for of_seed in of_seeds] == [3, 4, 5, 6, 7]
    assert {of_seed.task.name for of_seed in of_seeds} == {SHIFT}
    assert of_seeds[0].folder == run.folder


@pytest.mark.parametrize("examples", [1, True, 2.5, "many"])
def test_load_tasks_refuses_a_number_of_examples(task_files, examples):
    with pytest.raises(InputError, match=f"task_examples {examples}: expected a whole number"):
        finetune.load_tasks(task_files, "", examples=examples, seed=0, quick=False)


def test_load_tasks_of_all_examples_has_no_limit(task_files):
    (task,) = finetune.load_tasks(task_files, "", examples="all", seed=0, quick=False)
    assert len(task.train) == 24
