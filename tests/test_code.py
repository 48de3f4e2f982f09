"""After an edit of the code, a run gives the numbers of the new code, whatever is in the cache."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from toy_corpora import conllu

PACKAGE = Path(__file__).resolve().parent.parent / "helpers"

# Edits by file: text that occurs once in it, and its replacement.
EDITS = {
    "segments": {
        "store/examples.py": ("is_pair=True)\n", "is_pair=True) - max_tokens // 2\n"),
    },
    "words-and-vectors": {
        "model/forward.py": (
            "maps / counts[:, None]",
            "maps / counts[:, None] / 2 + 0.5 / n_words",
        ),
        "data/glove.py": ("        return vectors\n", "        return vectors * 0\n"),
    },
    "weights": {
        "model/weights.py": ("manual_seed(seed)", "manual_seed(seed + 1)"),
    },
    # They can be made together, because no number depends on both.
    "seeds-and-trainer": {
        "study.py": (
            "range(self.settings.initialisations)",
            "range(7, 7 + self.settings.initialisations)",
        ),
        "studies/common/fine_tune.py": ("LARGEST_NORM = 1.0", "LARGEST_NORM = 0.01"),
    },
}
# Edits of a docstring, of a comment, and of modules that change no number.
IGNORED_EDITS = {
    "store/examples.py": ('"""Make records, ', '"""Always make records, '),
    "studies/common/fine_tune.py": ("LARGEST_NORM = 1.0", "LARGEST_NORM = 1.0  # edited;"),
    "progress.py": ('"ncols": 100', '"ncols": 90'),
    "errors.py": (", or --dtype float32", ", or --dtype float32 (edited)"),
}

WORDS = ["the", "a", "dog", "cat", "barks", "watches", "old", "."]
SENTENCES = (
    [(1, "The", 2, "det"), (2, "dog", 3, "nsubj"), (3, "barks", 0, "root"), (4, ".", 3, "punct")],
    [(1, "A", 2, "det"), (2, "cat", 3, "nsubj"), (3, "watches", 0, "root"), (4, "dog", 3, "obj")],
)

# The process imports the heavy libraries once; each run is a fork of it that imports the package.
FORKING_SCRIPT = """
import os, sys
import pandas, scipy.stats, sklearn.linear_model, torch, transformers.models.bert.modeling_bert

def run(package, cache, figures, model, text, treebank, vectors):
    sys.path.insert(0, package)
    os.environ |= {"ATTENTION_CACHE": cache, "ATTENTION_FIGURES": figures}
    import helpers
    assert helpers.__file__.startswith(package)
    from helpers.metrics.dependency_heads import dependency_heads
    from helpers.metrics.surface import ENTROPY, RELATIVE_POSITION, TOKEN_TYPES, head_table
    from helpers.studies.common.fine_tune import FineTuningRun, Recipe, fine_tune
    from helpers.studies.common.tasks import Pair, Task
    from helpers.study import Study

    study = Study(
        model=model, text=text, treebank=treebank, vectors=vectors, name="tiny", segments=8,
        gradient_segments=4, max_tokens=32, seeds=1, device="cpu",
    )
    tables = study.probe_tables()
    measures = RELATIVE_POSITION + TOKEN_TYPES + ENTROPY
    for name, sums in {"model": study.sums, **study.control_sums}.items():
        tables[f"heads_{name}"] = head_table(sums, measures)
        tables[f"distances_{name}"], _ = study.distances("" if name == "model" else name)
        tables[f"gradients_{name}"] = study.gradient_table(study.controls.get(name))
    counts = study.head_counts(study.treebank_store())
    tables["relations"] = dependency_heads(counts, minimum=5)
    pairs = tuple(Pair(("the dog barks " * n,), n % 2) for n in range(1, 9))
    task = Task("task", ("odd", "even"), pairs, pairs)
    for encoder in (study.encoder, study.controls["random"]):
        (trained,) = fine_tune([FineTuningRun(encoder, task, Recipe(epochs=1, batch_size=4))])
        norms = {
            name: float(parameter.double().norm())
            for name, parameter in trained.classifier.named_parameters()
        }
        tables[f"trained_{encoder.slug}"] = pandas.Series(norms).reset_index()
    for name, table in tables.items():
        study.save_table(table, name, optional=list(table))

torch.set_num_threads(1)
for line in sys.stdin:
    child = os.fork()
    if not child:
        try:
            run(*line.split())
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        sys.stderr.flush()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Runner:
    """Runs copies of the package, each in its own process."""

    def __init__(self, folder, model):
        self.folder = folder
        self.model = model
        self.errors = folder / "errors"
        self.process = subprocess.Popen(
            [sys.executable, "-c", FORKING_SCRIPT],
            env=self.environment(),
            cwd=folder,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors.open("a"),
        )
        self.inputs = self.write_inputs()

    @staticmethod
    def environment():
        """Make an environment that imports a copy of the package only, and runs in one thread."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        environment.pop("PYTHONPATH", None)
        return environment

    def write_inputs(self):
        """Write a text, a treebank and word vectors; return their paths."""
        text = self.folder / "text.txt"
        documents = []
        for number in range(8):
            lines = [f"The dog {number} barks {'and ' * count}" for count in range(6)]
            documents.append("\n".join(lines))
        text.write_text("\n".join(documents))
        treebank = self.folder / "train.conllu"
        treebank.write_text(conllu(*SENTENCES, times=8))
        vectors = self.folder / "vectors.txt"
        rows = [f"{word} {i % 3} {i % 5} {i % 7}" for i, word in enumerate(WORDS)]
        vectors.write_text("\n".join(rows))
        return text, treebank, vectors

    def edit(self, name, edits):
        """Copy the package into a new folder, edit some of its files, and return the folder."""
        folder = self.folder / name
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PACKAGE, folder / "helpers", ignore=ignored)
        for file, (old, new) in edits.items():
            path = folder / "helpers" / file
            source = path.read_text()
            assert source.count(old) == 1, (file, old)
            path.write_text(source.replace(old, new))
        return folder

    def tables(self, package, cache):
        """Run a copy of the package with a cache; return its tables."""
        self.errors.write_text("")
        figures = cache.with_name(f"{cache.name}-figures")
        arguments = (package, cache, figures, self.model, *self.inputs)
        print(*arguments, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "0\n", self.errors.read_text()
        tables = {path.name: path.read_bytes() for path in figures.glob("tiny/tables/*.csv")}
        assert len(tables) > 12
        return tables


@pytest.fixture(scope="module")
def runner(tmp_path_factory, tiny_folder):
    """A process that runs copies of the package."""
    runner = Runner(tmp_path_factory.mktemp("code"), tiny_folder("bert"))
    with runner.process as process:
        yield runner
        process.stdin.close()


@pytest.fixture(scope="module")
def unedited_run(runner):
    """The tables of the package without an edit, and the cache that its run has filled."""
    cache = runner.folder / "cache"
    tables = runner.tables(runner.edit("package", {}), cache)
    return tables, cache


@pytest.mark.parametrize("name", EDITS)
def test_run_after_an_edit_gives_the_tables_of_the_edited_code(runner, unedited_run, name):
    unedited_tables, cache = unedited_run
    package = runner.edit(name, EDITS[name])
    filled_cache = shutil.copytree(cache, runner.folder / f"{name}-filled")
    tables = runner.tables(package, filled_cache)
    tables_of_empty_cache = runner.tables(package, runner.folder / f"{name}-empty")
    assert tables == tables_of_empty_cache
    assert tables != unedited_tables


def test_run_after_edits_that_change_no_number_uses_the_cache(runner, unedited_run):
    unedited_tables, cache = unedited_run
    package = runner.edit("ignored", IGNORED_EDITS)
    filled_cache = shutil.copytree(cache, runner.folder / "ignored-filled")
    tables = runner.tables(package, filled_cache)
    assert tables == unedited_tables
    assert len(list(filled_cache.rglob("*"))) == len(list(cache.rglob("*")))
