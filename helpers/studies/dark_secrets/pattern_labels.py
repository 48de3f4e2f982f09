"""Maps labelled by eye, and the judges that learn from them to tell the patterns apart.

``pattern_labels.csv`` has a row a map: model, source, example, layer, head, the labels of the first
and the second pass, and the settled one; ``pattern_maps.safetensors`` has the maps as they are
drawn, 32 x 32, and their features (`map_features`), in the same order.  One annotator labelled
from images without names, in two passes and two orders; a third look settled where they differ.
The first 648 are one map of each head of two models in an input of each source; few of them were
blocks or heterogeneous, so that the last 118 are two more of each head and source that had one.
The rules, in this order:

- a column counts where it is clearly darker than its surroundings over most of the rows, be it
  one token wide or at the edge; a diagonal where a dark line or band (of one side, too) follows
  the main diagonal over most of its length; a light one does not count;
- squares (or triangles) that fill a text or a sentence on the diagonal, and are what one sees
  first, make a map "block", whatever columns cross them;
- else columns and diagonal decide; a map with neither is "heterogeneous".

Judges: support vectors on all features, a small convolutional network, as in the paper (which had
about 400 maps), and thresholds on the features with names (a small decision tree), each scored on
heads that it was not fitted on.  07 uses the support vectors.  Their settings are chosen by an
inner cross-validation over the heads that they are fitted on, so that this choice is no part of
their score; the features were made by looking at these maps, and blocks that were missed.  Plain
squares drawn by hand are still taken for a diagonal.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int, Shaped
from safetensors.numpy import load_file
from sklearn.metrics import cohen_kappa_score
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from torch import Tensor, nn

from helpers.analysis.paper import values_of
from helpers.analysis.statistics import percentiles, resampled_sums
from helpers.cache import cached_table
from helpers.model.parallel import StepDone, run_jobs
from helpers.settings import small_profile
from helpers.studies.dark_secrets.pattern_features import CLASSES, FEATURES

JUDGES = ("support vectors", "network", "thresholds")  # the first is used
FOLDS, SMALL_FOLDS = 5, 2  # the second in the small profile
SMALL = 32  # tokens of a map for the network
WIDTH = 8  # channels of the network's first convolution
EPOCHS, BATCH, LEARNING_RATE, WEIGHT_DECAY, SMOOTHING = 25, 64, 8e-3, 1e-2, 0.05
RARE = 0.5  # an error counts as the frequency of the label to the power of -RARE
COSTS, WIDTHS = (1, 3), (0.2, 0.4)  # settings of the support vectors to choose from
FARTHEST = 4  # standard deviations that a feature may be from its mean
LEAVES = 8  # of the decision tree: seven thresholds
SMALL_CLASS = 1e-9  # a class that a resample has no map of counts as not found
RESAMPLES = 1000

SmallMaps = Shaped[np.ndarray, "map 32 32"]
Features = Float[np.ndarray, "map feature"]
Labels = Int[np.ndarray, " map"]
Confusion = Int[np.ndarray, "*sample label guess"]


@cache
def read_labels() -> pd.DataFrame:
    """Return the labelled maps (see the module)."""
    return pd.read_csv(Path(__file__).with_name("pattern_labels.csv"))


@cache
def read_maps() -> dict[str, np.ndarray]:
    """Return ``maps`` (`small_maps`) and ``features`` (`map_features`) of the labelled maps."""
    return load_file(Path(__file__).with_name("pattern_maps.safetensors"))


def label_indices(column: str = "settled") -> Labels:
    """Return the labels of one column, as indices into `CLASSES`."""
    return read_labels()[column].map(CLASSES.index).to_numpy()


def labelled_heads() -> Int[np.ndarray, " map"]:
    """Return a number for the head of each labelled map: nothing of a head is on both sides."""
    return read_labels().groupby(["model", "layer", "head"]).ngroup().to_numpy()


class PatternNetwork(nn.Module):
    """Logits of the classes of small maps: three convolutions, with the place of each cell."""

    def __init__(self) -> None:
        super().__init__()
        layers, before = [], 4
        for after in (WIDTH, 2 * WIDTH, 2 * WIDTH):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            before = after
        last = nn.Linear(before * (SMALL // 8) ** 2, len(CLASSES))
        self.layers = nn.Sequential(*layers, nn.Flatten(), last)
        generator = torch.Generator().manual_seed(0)  # its own: folds are trained side by side
        for weight in self.parameters():
            if weight.ndim > 1:
                nn.init.kaiming_uniform_(weight, a=5**0.5, generator=generator)
            else:
                nn.init.zeros_(weight)

    def forward(self, maps: Float[Tensor, "map 32 32"]) -> Float[Tensor, "map class"]:
        """Return the logits of maps from 0 to 1."""
        line = torch.linspace(-1, 1, SMALL)
        query, key = torch.meshgrid(line, line, indexing="ij")
        place = torch.stack([query, key, (query - key).abs()]).expand(len(maps), -1, -1, -1)
        return self.layers(torch.cat([4 * maps[:, None] - 1, place], dim=1))

    @torch.no_grad()
    def guess(self, maps: SmallMaps) -> Labels:
        """Return the class of each map."""
        return self(_as_input(maps)).argmax(1).numpy()


def train_network(maps: SmallMaps, labels: Labels) -> PatternNetwork:
    """Return a network trained on labelled maps; the same ones give the same weights."""
    generator, network = np.random.default_rng(0), PatternNetwork()
    weight = torch.tensor(_class_weights(labels), dtype=torch.float32)
    loss = nn.CrossEntropyLoss(weight, label_smoothing=SMOOTHING)
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=WEIGHT_DECAY)
    batches = -(-len(labels) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, total_steps=EPOCHS * batches
    )
    inputs, targets = _as_input(maps), torch.from_numpy(labels)
    for _ in range(EPOCHS):
        for some in np.array_split(generator.permutation(len(labels)), batches):
            optimizer.zero_grad()
            loss(network(inputs[some]), targets[some]).backward()
            optimizer.step()
            schedule.step()
    return network


def fit_vectors(features: Features, labels: Labels, heads: Int[np.ndarray, " map"]) -> GridSearchCV:
    """Return support vectors with a radial kernel; their settings are chosen over these heads."""
    clip = FunctionTransformer(np.clip, kw_args={"a_min": -FARTHEST, "a_max": FARTHEST})
    vectors = SVC(class_weight=dict(enumerate(_class_weights(labels))))
    settings = {"svc__C": COSTS, "svc__gamma": [width / features.shape[1] for width in WIDTHS]}
    judge = GridSearchCV(
        make_pipeline(StandardScaler(), clip, vectors), settings, scoring="f1_macro",
        cv=GroupKFold(FOLDS),
    )  # fmt: skip
    return judge.fit(features, labels, groups=heads)


@cache
def pattern_judge() -> GridSearchCV:
    """Return the support vectors of all labelled maps."""
    return fit_vectors(read_maps()["features"], label_indices(), labelled_heads())


def guesses() -> pd.DataFrame:
    """Return what each judge (columns: `JUDGES`) says of each labelled map, as indices.

    Heads are dealt out to folds at random, and each fold is judged by what the others taught.
    """

    folds = SMALL_FOLDS if small_profile() else FOLDS

    def compute() -> pd.DataFrame:
        heads = labelled_heads()
        fold = (np.random.default_rng(0).permutation(heads.max() + 1) % folds)[heads]
        jobs = [partial(_fold, fold != number) for number in range(folds)]
        device = torch.device("cpu")
        found = run_jobs(jobs, device, label="patterns learned", unit="fold", total=folds)
        told = np.zeros((len(heads), len(JUDGES)), int)
        for number, part in enumerate(found):
            told[fold == number] = part
        return pd.DataFrame(told, columns=list(JUDGES))

    return cached_table("pattern-guesses", compute, depends_on={"folds": folds})


def confusion_by_head(judge: str) -> Confusion:
    """Return, for each labelled head, how many maps of each class a judge takes for which."""
    heads = labelled_heads()
    counts = np.zeros((heads.max() + 1, len(CLASSES), len(CLASSES)), int)
    np.add.at(counts, (heads, label_indices(), guesses()[judge].to_numpy()), 1)
    return counts


def confusion_table() -> pd.DataFrame:
    """Return how many labelled maps of each class (rows) are taken for which (columns)."""
    table = pd.DataFrame(confusion_by_head(JUDGES[0]).sum(axis=0), columns=list(CLASSES))
    table.insert(0, "label", CLASSES)
    return table


def measures(counts: Confusion) -> Float[np.ndarray, "*sample measure"]:
    """Return accuracy and macro F1 (the mean over all classes, 0 for one never found)."""
    right = np.diagonal(counts, axis1=-2, axis2=-1)
    f1 = 2 * right / np.maximum(counts.sum(axis=-1) + counts.sum(axis=-2), SMALL_CLASS)
    return np.stack([right.sum(axis=-1) / counts.sum(axis=(-2, -1)), f1.mean(axis=-1)], axis=-1)


def trust_table() -> pd.DataFrame:
    """Return how far the pattern classes can be trusted.

    Columns: measure, percent, its 95% interval over heads where there is one, and the paper's F1
    of its own network on its own labels.
    """
    published, rows = values_of("Kovaleva")["pattern classifier F1"], []
    for name in JUDGES:
        counts = confusion_by_head(name)
        bounds = percentiles(measures(resampled(counts)), len(counts))
        for measure, *values in zip(
            ("accuracy", "macro F1"), measures(counts.sum(axis=0)), *bounds, strict=True
        ):
            paper = published if (name, measure) == ("network", "macro F1") else np.nan
            rows.append((f"{measure}, {name}", *(100 * value for value in values), paper))
    passes = label_indices("pass1"), label_indices("pass2")
    for measure, share in (
        ("accuracy of the commonest label", np.bincount(label_indices()).max() / len(passes[0])),
        ("same label in both passes", (passes[0] == passes[1]).mean()),
        ("the same beyond chance (kappa, in percent)", cohen_kappa_score(*passes)),
    ):
        rows.append((measure, 100 * share, np.nan, np.nan, np.nan))
    return pd.DataFrame(rows, columns=["measure", "percent", "ci_low", "ci_high", "paper"])


def resampled(counts: Confusion, *, seed: int = 0) -> Confusion:
    """Return sums of `confusion_by_head` over heads that are drawn anew."""
    drawn = resampled_sums(counts.reshape(len(counts), -1), resamples=RESAMPLES, seed=seed)
    return drawn.reshape(-1, *counts.shape[1:])


def _fold(keep: Bool[np.ndarray, " map"], step_done: StepDone) -> Int[np.ndarray, "map judge"]:
    maps, features = read_maps()["maps"], read_maps()["features"]
    labels, heads = label_indices(), labelled_heads()
    named = features[:, : len(FEATURES)]
    tree = DecisionTreeClassifier(max_leaf_nodes=LEAVES, class_weight="balanced", random_state=0)
    told = [
        fit_vectors(features[keep], labels[keep], heads[keep]).predict(features[~keep]),
        train_network(maps[keep], labels[keep]).guess(maps[~keep]),
        tree.fit(named[keep], labels[keep]).predict(named[~keep]),
    ]
    step_done()
    return np.stack(told, axis=1)


def _class_weights(labels: Labels) -> Float[np.ndarray, " class"]:
    counts = np.maximum(np.bincount(labels, minlength=len(CLASSES)), 1)
    return (counts / len(labels)) ** -RARE


def _as_input(maps: SmallMaps) -> Float[Tensor, "map 32 32"]:
    return torch.from_numpy(maps.astype(np.float32) / 255)
