"""Training: the schedule, batches, a step by hand, repeatability, and the cache of runs."""

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from beyond.papers.common import fine_tune as finetune
from beyond.papers.common.classifier import Classifier, batches, outputs
from beyond.papers.common.fine_tune import FineTuningRun, Recipe
from beyond.papers.common.tasks import Pair, Task
from helpers.errors import InputError, ModelError


def toy_task(train=64, test=16, name="toy"):
    """Make a task: is the text about cats or about dogs?  Its other words do not matter."""
    rng = np.random.default_rng(0)
    pairs = []
    for number in range(train + test):
        words = ["cat", "dog"][number % 2 :][:1] * 3 + ["the", "rain"] * rng.integers(0, 3)
        pairs.append(Pair((" ".join(rng.permutation(words)),), number % 2))
    return Task(name, ("cats", "dogs"), train=tuple(pairs[:train]), test=tuple(pairs[train:]))


def train_run(encoder, task=None, **settings):
    recipe = Recipe(**{"epochs": 6, "max_tokens": 32, "learning_rate": 3e-3, **settings})
    (run,) = finetune.fine_tune([FineTuningRun(encoder, task or toy_task(), recipe)])
    return run


def test_shuffled_epochs_have_each_example_once_in_a_new_order():
    recipe = Recipe(epochs=2, batch_size=10)
    batches = list(finetune.shuffled_epochs(recipe, range(45)))
    first, second = (list(chain.from_iterable(epoch)) for epoch in (batches[:5], batches[5:]))
    assert sorted(first) == sorted(second) == list(range(45)) and first != second
    assert all(max(batch) - min(batch) < 10 for batch in batches)  # of similar length
    assert batches != list(finetune.shuffled_epochs(replace(recipe, seed=1), range(45)))


def test_fine_tune_takes_steps_of_adamw_with_clipped_gradients(encoder, own_cache):
    """Two epochs of one batch; the first step is the warm-up, and matrices decay."""
    task = toy_task(train=2)
    run = train_run(encoder, task, epochs=2, batch_size=2, learning_rate=1e-2)
    expected = Classifier(encoder, 2, seed=0)
    parameters = [p for p in expected.parameters() if p.requires_grad]
    groups = [{"params": p, "weight_decay": 0.01 * (p.ndim > 1)} for p in parameters]
    optimizer = torch.optim.AdamW(groups, lr=1e-2)
    ((batch, labels, _),) = batches(encoder, task.train, max_tokens=32)
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(expected(**batch), labels).backward()
        assert torch.nn.utils.clip_grad_norm_(parameters, 1.0) > 1  # it clips
        optimizer.step()
    trained = dict(run.classifier.named_parameters())
    for name, weight in expected.named_parameters():
        if not name.endswith("key.bias"):  # softmax cancels it: rounding, which AdamW scales up
            torch.testing.assert_close(trained[name], weight.detach(), atol=2e-5, rtol=1e-4)


def test_parallel_runs_have_the_weights_of_each_run_by_itself(encoder, monkeypatch, tmp_path):
    torch.set_num_threads(2)  # the fixture of all tests sets it back
    recipe = Recipe(epochs=1, max_tokens=32)
    weights = []
    for cache, groups in (("together", [[0, 1]]), ("alone", [[0], [1]])):
        monkeypatch.setenv("ATTENTION_CACHE", str(tmp_path / cache))
        for seeds in groups:
            runs = [FineTuningRun(encoder, toy_task(), replace(recipe, seed=s)) for s in seeds]
            weights += [run.classifier.state_dict() for run in finetune.fine_tune(runs)]
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[2][name])
        assert torch.equal(weights[1][name], weights[3][name])
    assert not torch.equal(weights[0]["head.weight"], weights[1]["head.weight"])


def test_a_finished_run_is_read_and_an_interrupted_one_trained_again(
    encoder, own_cache, monkeypatch
):
    padded = finetune.padded
    steps = iter(range(5))

    def interrupted(*arguments):
        if next(steps, None) is None:
            raise KeyboardInterrupt
        return padded(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(finetune, "padded", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train_run(encoder)
    assert not list(own_cache.rglob("*.safetensors"))
    run = train_run(encoder)
    logits = outputs(run.classifier, encoder, run.task.test, max_tokens=32)
    assert logits.argmax(axis=1).tolist() == run.predictions.tolist()
    assert np.mean(run.predictions == run.labels) > 0.9
    with monkeypatch.context() as patch:
        patch.setattr(finetune, "padded", None)  # no training
        assert train_run(encoder).folder == run.folder
    tuned = run.fine_tuned_encoder()
    assert tuned.key == encoder.key | {"fine_tuned": run.folder.name}
    ids = torch.tensor([[2, 7, 8, 3]])
    maps = [it.model(ids, output_attentions=True).attentions[-1] for it in (encoder, tuned)]
    assert not torch.allclose(*maps)
    with pytest.raises(ModelError, match=r"task 'toy': the loss of step .* smaller learning rate"):
        train_run(encoder, learning_rate=1e30)


def test_folder_depends_on_every_setting_and_on_the_task(encoder):
    changed = {"seed": 1, "epochs": 1, "max_tokens": 31, "batch_size": 8, "learning_rate": 1e-3}
    recipes = [Recipe(), *(Recipe(**{name: value}) for name, value in changed.items())]
    folders = [FineTuningRun(encoder, toy_task(), recipe).folder for recipe in recipes]
    folders.append(FineTuningRun(encoder, toy_task(train=62), Recipe()).folder)
    assert len(set(folders)) == len(folders)
    assert FineTuningRun(encoder, toy_task(), Recipe()).folder == folders[0]


def test_load_tasks_of_two_files_samples_them_and_refuses_what_it_cannot_read(tmp_path):
    (tmp_path / "train.tsv").write_text("the cat\tcats\nthe dog\tdogs\n" * 12)
    (tmp_path / "test.tsv").write_text("a cat\tcats\na dog\tdogs\nrain\tdogs\n")
    files = f"{tmp_path / 'train.tsv'}, {tmp_path / 'test.tsv'}"
    for examples, quick, size in ((12, False, 12), ("all", False, 24), (12, True, 6)):
        (task,) = finetune.load_tasks(files, "", examples=examples, seed=0, quick=quick)
        assert (len(task.train), len(task.test)) == (size, 3)
    for task, examples in (("one.tsv", 12), ("a,b,c", 12), (files, 1), (files, True)):
        with pytest.raises(InputError, match=r"expected (two files|a whole number)"):
            finetune.load_tasks(task, "", examples=examples, seed=0, quick=False)
