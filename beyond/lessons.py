"""Functions of lessons: the scores of a model, one changed weight, drawn trees.

Functions that run a model import torch when they are called: a lesson whose results are all in the
cache does without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from helpers import metrics
from helpers.cache import cached
from helpers.data.links import Links
from helpers.data.records import Record, visible_mask
from helpers.errors import ModelError
from helpers.metrics.heads import head_rows
from helpers.plots.style import INK, WRONG

if TYPE_CHECKING:
    from torch import Tensor

    from beyond.papers.common.fine_tune import FineTuningRun
    from beyond.papers.common.tasks import Pair
    from helpers.model.forward import Inputs
    from helpers.model.loading import Model
    from helpers.store.store import Store
    from helpers.study import Study

ROOT = -1  # the parent of a root
LONGEST_LABEL = 8  # letters of a relation below a word
INCHES_OF_LETTER = 0.085  # of a word


def softmax_scores(encoder: Model, inputs: Inputs) -> list[np.ndarray]:
    """Run a model on one example and keep what each layer gives to its softmax.

    A model with a softmax of its own has the logarithms of its maps instead, whose softmax is the
    same.

    Parameters
    ----------
    encoder : Model
        The model.
    inputs : dict
        The inputs of an example, as its record has them.

    Returns
    -------
    list of array, one for each layer, shape (head, query, key)
    """
    from helpers.model.forward import forward
    from helpers.model.sites import PatchSoftmax

    layer_scores: dict[int, np.ndarray] = {}

    def keep(layer: int, scores: Tensor, softmax: Callable) -> Tensor:
        layer_scores[layer] = scores[0].float().numpy(force=True)
        return softmax(scores)

    with PatchSoftmax(encoder.model, keep):
        maps, _ = forward(encoder, [inputs])
    layers = range(len(maps))
    return [layer_scores.get(layer, maps[layer][0].log().numpy(force=True)) for layer in layers]


def loss_with_change(
    encoder: Model, records: Sequence[Record], seed: int, cell: tuple[int, int, int, int]
) -> Callable[[float], float]:
    """Make a function from a change of one attention weight to the loss.

    Parameters
    ----------
    encoder : Model
        The model.
    records : sequence of dict
        The records of a batch.
    seed : int
        Chooses the tokens that are masked, if any are.
    cell : tuple of int
        The layer, head, query and key of the weight, in the first input.

    Returns
    -------
    callable
        It takes the change and returns the sum of the losses, in nats.
    """
    from helpers.model.gradients import training_losses
    from helpers.model.sites import PatchSoftmax

    changed_layer, head, query, key = cell

    def compute_loss(change: float) -> float:
        def add_change(layer: int, scores: Tensor, softmax: Callable) -> Tensor:
            weights = softmax(scores)
            if layer == changed_layer:
                weights = weights.clone()
                weights[0, head, query, key] += change
            return weights

        with PatchSoftmax(encoder.model, add_change):
            losses, _, _ = training_losses(encoder, records, np.random.default_rng(seed))
        return losses.sum().item()

    return compute_loss


def value_sizes(encoder: Model, inputs: list[Inputs], layer: int, head: int) -> np.ndarray:
    """Measure |f(x)| of each token of the first input; NaN if the model has no such vectors."""
    from helpers.model.forward import value_pass

    sizes = np.full(len(inputs[0]["input_ids"]), np.nan)
    with suppress(ModelError), value_pass(encoder) as run:
        _, norms, _ = run(inputs)
        sizes = norms[layer][0, head, : len(sizes)].numpy(force=True)
    return sizes


def draw_arcs(words: Sequence[str], links: Links, picks: np.ndarray | None = None) -> None:
    """Draw arrows from words to their parents; picks are below, errors in orange.

    Parameters
    ----------
    words : sequence of str
        The sentence.
    links : Links
        Its words and their right answers, which are drawn above.
    picks : int array of shape (link,), optional
        A parser's or a head's answers; -1 is ROOT.
    """
    shortest = 1 if picks is not None else LONGEST_LABEL - 2  # labels have smaller letters
    widths = np.array([max(len(word), shortest) + 2 for word in words])
    places = (np.cumsum(widths) - widths / 2) * len(words) / widths.sum()
    width = max(8, INCHES_OF_LETTER * widths.sum())
    _, axes = plt.subplots(figsize=(width, 2 if picks is None else 2.8), layout="constrained")
    for place, word in zip(places, words, strict=True):
        axes.text(place, 0, word, ha="center", va="center", color=INK)
    for link, word in enumerate(links.word):
        parents = np.flatnonzero(links.gold[link]).tolist() or [ROOT]
        for parent in parents:
            _draw_arc(axes, places, word, parent, height=1)
        if picks is not None:
            color = INK if picks[link] in parents else WRONG
            _draw_arc(axes, places, word, int(picks[link]), height=-1, color=color)
    if picks is None:
        for relation, word in zip(links.relation, links.word, strict=True):
            label = str(relation)[:LONGEST_LABEL]
            axes.text(places[word], -0.3, label, ha="center", va="center", fontsize=7)
    top = 0.5 + _longest(links, picks) / 4
    axes.set(xlim=(-0.2, len(words) + 0.2), ylim=(-0.6 if picks is None else -top, top))
    axes.axis("off")


def _longest(links: Links, picks: np.ndarray | None) -> int:
    """Compute the distance of the longest arrow, in words."""
    link, parent = np.nonzero(links.gold)
    ends: list[np.ndarray] = [abs(parent - links.word[link])]
    if picks is not None:
        ends.append(abs(picks - links.word)[picks != ROOT])
    return int(np.concatenate([*ends, [1]]).max())


def _draw_arc(
    axes: Any, places: np.ndarray, word: int, parent: int, height: int, color: str = INK
) -> None:
    """Draw one arrow, above the words or below; errors lie over the others."""
    order: Mapping[str, Any] = {"zorder": 3 if color == WRONG else 2}
    x = places[word]
    if parent == ROOT:
        axes.text(x, 0.25 * height, "ROOT", ha="center", va="center", fontsize=7, color=color)
        return
    turn = np.linspace(0, np.pi, 40)
    x = (x + places[parent]) / 2 + (x - places[parent]) / 2 * np.cos(turn)  # from the word
    y = height * (0.4 + abs(word - parent) / 4 * np.sin(turn))
    axes.plot(x, y, color=color, **order)
    arrow = {"arrowstyle": "-|>", "color": color}
    axes.annotate("", (x[-1], y[-1]), (x[-4], y[-4]), arrowprops=arrow, **order)


def repeated_token_tables(study: Study, store: Store) -> dict[str, pd.DataFrame]:
    """Measure where heads look in random tokens that are written twice.

    Parameters
    ----------
    study : Study
        The study, whose model and random control are measured.
    store : Store
        The segments whose tokens are the vocabulary.

    Returns
    -------
    dict of str to DataFrame
        For "trained" and "random", the mean weight of each head from the second half to the
        ``previous`` token, to the ``same`` token of the first half, and to the one ``after_same``.
        "uniform" has the ``weight`` of uniform attention in each layer.
    """
    vocabulary = {token for record in store.records() for token in record["tokens"]}
    seed = study.settings.seed
    models = ("trained", "random")

    def measure_repeated_tokens() -> dict[str, pd.DataFrame]:
        from helpers.model.forward import repeated_token_maps  # torch

        measured = {}
        for name in models:
            encoder = study.load(name)
            maps, start, n_tokens = repeated_token_maps(encoder, vocabulary, seed)
            queries = start + n_tokens + np.arange(n_tokens)  # the second half
            keys = {
                "previous": queries - 1,
                "same": queries - n_tokens,
                "after_same": queries - n_tokens + 1,
            }
            columns = {}
            for key_name, positions in keys.items():
                weights = maps[..., queries, positions]  # [layer, sequence, head, query]
                columns[key_name] = weights.mean(axis=(1, 3))
            measured[name] = head_rows(encoder.layers, encoder.heads, **columns)
        visible = np.stack([visible_mask(layer, maps.shape[-1]) for layer in store.visible])
        uniform = 1 / visible[:, queries].sum(axis=-1)  # [layer, query]
        measured["uniform"] = pd.DataFrame({"weight": uniform.mean(axis=1)})
        return measured

    keys_of_models = [study.model_key(name) for name in models]
    return cached(
        "repeated-tokens",
        measure_repeated_tokens,
        inputs={"models": keys_of_models, "vocabulary": sorted(vocabulary), "seed": seed},
    )


def _rules(store: Store, study: Study) -> pd.DataFrame:
    """Compute the table with the class and side of each relation of a treebank, once."""
    counts = metrics.head_counts.head_counts(store)
    minimum = study.settings.minimum_count
    tables = metrics.dependency_heads.relation_tables(store, counts, minimum=minimum)
    return tables["dependency_heads_held_out"]


def heads_with_relations(study: Study, store: Store) -> tuple[pd.DataFrame, dict[str, int]]:
    """Find the heads that a relation or coreference names in the atlas.

    Parameters
    ----------
    study : Study
        The study, whose treebank and documents are read where it has them.
    store : Store
        A store that has the layers and heads of the model.

    Returns
    -------
    heads : DataFrame
        A row for each head, as `helpers.metrics.atlas.head_atlas` takes it.
    named : dict of str to int
        How many heads a relation names, in the model and in two controls; empty without tags.
    """
    heads = head_rows(store.layers, store.heads, store.layer_numbers)
    named = {}
    if study.has_parses and not study.settings.pairs:
        treebanks = {
            "trained": study.treebank_store(),
            "random": study.treebank_store("random"),
            "shuffled": study.shuffled_store(),
        }
        rules = {name: _rules(treebanks[name], study) for name in ("trained", "shuffled")}
        if rules["trained"]["nearest_class"].notna().any():
            for name, treebank in treebanks.items():
                own_rules = rules.get(name, rules["trained"])
                answers = metrics.tags_and_places.additions(treebank, own_rules)
                class_heads = metrics.tags_and_places.class_heads(answers)
                named[name] = int((class_heads["lead_low"] > 0).sum())
                heads = class_heads if name == "trained" else heads
    if not study.missing_note("coref"):
        antecedents = metrics.coreference.antecedents(study.coreference_store())
        heads["coreference"] = antecedents["mentions"].accuracy("all").ravel()
    return heads, named


def head_outputs(
    run: FineTuningRun, pairs: Sequence[Pair], layer: int, head: int
) -> list[np.ndarray]:
    """Collect what a head of a fine-tuned model puts out on some texts.

    Parameters
    ----------
    run : FineTuningRun
        The fine-tuned classifier.
    pairs : sequence of Pair
        The examples.
    layer, head : int
        Counted from 0.

    Returns
    -------
    list of array of shape (token, width)
        The outputs of the head for each example, before the output projection.
    """
    import torch

    from beyond.papers.common.classifier import task_inputs
    from helpers.model.forward import padded
    from helpers.model.sites import patch_head_outputs, sites

    collected = []

    def collect(current: int, outputs: Tensor) -> Tensor:
        if current == layer:
            collected.append(outputs[0, :, head].numpy(force=True))
        return outputs

    with patch_head_outputs(sites(run.classifier), collect), torch.no_grad():
        for inputs in task_inputs(run.encoder, pairs, run.recipe.max_tokens):
            run.classifier(**padded(run.encoder, [inputs]))
    return collected
