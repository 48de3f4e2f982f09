"""Edits of the code that numbers come from: what is kept of before is not what a run gives."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from toy_corpora import conllu

PACKAGE = Path(__file__).resolve().parent.parent / "helpers"
EDITS = {  # what stands in a file of the package, and what does so after
    "segments": {"store/examples.py": ("is_pair=True)\n", "is_pair=True) - max_tokens // 2\n")},
    "words": {"model/forward.py": ("(summed / counts[:, None])",
                                   "(summed / counts[:, None] / 2 + 0.5 / words)")},
    "weights": {"model/weights.py": ("manual_seed(seed)", "manual_seed(seed + 1)")},
    # No number comes from both.
    "vectors-trainer": {"data/glove.py": ("        return found\n", "        return found * 0\n"),
                        "studies/fine_tune.py": ("LARGEST_NORM = 1.0", "LARGEST_NORM = 0.01")},
    "messages": {"store/examples.py": ("an attention row of example", "in one row, example"),
                 "studies/fine_tune.py": ("the loss of step", "the mistake at step"),
                 "data/wikipedia.py": ("Reading {path.name}", "{path.name} is read")},
}  # fmt: skip
WORDS = ["the", "a", "dog", "cat", "barks", "watches", "old", "."]
ONE = [(1, "The", 2, "det"), (2, "dog", 3, "nsubj"), (3, "barks", 0, "root"), (4, ".", 3, "punct")]
TWO = [(1, "A", 2, "det"), (2, "cat", 3, "nsubj"), (3, "watches", 0, "root"), (4, "dog", 3, "obj")]
OTHER_CODE = "made by other code: extracted again; 'python -m helpers cache accept"
# Every run has a process of its own that imports the package anew, and all that is heavy but once.
RUN = """
import os, sys
import pandas, scipy.stats, sklearn.linear_model, torch, transformers.models.bert.modeling_bert

def run(package, cache, figures, model, text, treebank, vectors):
    sys.path.insert(0, package)
    os.environ |= {"ATTENTION_CACHE": cache, "ATTENTION_FIGURES": figures}
    import helpers
    assert helpers.__file__.startswith(package)
    from helpers.analysis.dependency_heads import dependency_heads
    from helpers.analysis.surface import ENTROPY, RELATIVE_POSITION, TOKEN_TYPES, head_table
    from helpers.studies.fine_tune import FineTuned, Recipe, fine_tune
    from helpers.studies.tasks import Pair, Task
    from helpers.study import Study

    study = Study(
        model=model, text=text, treebank=treebank, vectors=vectors, name="tiny", segments=8,
        gradient_segments=4, max_tokens=32, seeds=1, device="cpu",
    )
    tables = study.probe_tables()
    for control, sums in {"own": study.sums, **study.control_sums}.items():
        kinds = RELATIVE_POSITION + TOKEN_TYPES + ENTROPY
        tables[f"heads_{control}"] = head_table(sums, kinds)
        tables[f"distances_{control}"] = study.distances(sums)
        tables[f"gradients_{control}"] = study.gradient_table(study.controls.get(control))
    counts = study.head_counts(study.treebank_store())
    tables["relations"] = dependency_heads(counts, minimum=5)
    pairs = tuple(Pair("the dog barks " * n, None, n % 2) for n in range(1, 9))
    task = Task("task", ("odd", "even"), pairs, pairs)
    for encoder in (study.encoder, study.control(0)):
        (trained,) = fine_tune([FineTuned(encoder, task, Recipe(epochs=1, batch_size=4))])
        sizes = {n: float(p.double().norm()) for n, p in trained.classifier.named_parameters()}
        tables[f"trained_{encoder.slug}"] = pandas.Series(sizes).reset_index()
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


def edited(folder, edits):
    """A copy of the package with other code in some files; its folder."""
    shutil.copytree(PACKAGE, folder / "helpers", ignore=shutil.ignore_patterns("__pycache__"))
    for name, (old, new) in edits.items():
        path = folder / "helpers" / name
        assert path.read_text().count(old) == 1, (name, old)
        path.write_text(path.read_text().replace(old, new))
    return folder


def test_no_number_outlives_the_code_that_it_comes_from(tiny_folder, tmp_path):
    places = tmp_path / "text.txt", tmp_path / "train.conllu", tmp_path / "vectors.txt"
    documents = ("\n".join(f"The dog {n} barks {i * 'and '}" for i in range(6)) for n in range(8))
    vectors = (f"{word} {i % 3} {i % 5} {i % 7}" for i, word in enumerate(WORDS))
    texts = "\n\n".join(documents), conllu(ONE, TWO, times=8), "\n".join(vectors)
    for path, text in zip(places, texts, strict=True):
        path.write_text(text)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment.pop("PYTHONPATH", None)
    errors = tmp_path / "errors"
    runs = subprocess.Popen(
        [sys.executable, "-c", RUN], env=environment, cwd=tmp_path, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors.open("a"),
    )  # fmt: skip

    def tables(package, cache):
        figures = cache.with_name(f"{cache.name}-figures")
        print(package, cache, figures, tiny_folder("bert"), *places, file=runs.stdin, flush=True)
        assert runs.stdout.readline() == "0\n", errors.read_text()
        found = {path.name: path.read_bytes() for path in figures.glob("tiny/tables/*.csv")}
        assert len(found) > 12
        return found

    with runs:
        before = tables(edited(tmp_path / "package", {}), tmp_path / "cache")
        for name, edits in EDITS.items():
            package = edited(tmp_path / name, edits)
            warm = shutil.copytree(tmp_path / "cache", tmp_path / f"{name}-warm")
            errors.write_text("")
            after = tables(package, warm)
            if name == "messages":
                assert after == before
                assert len(list(warm.rglob("*"))) == len(list((tmp_path / "cache").rglob("*")))
                continue
            assert (OTHER_CODE in errors.read_text()) == (name in ("segments", "words", "weights"))
            assert after != before, name
            cold = tables(package, tmp_path / f"{name}-cold")
            assert [own for own in cold if after[own] != cold[own]] == [], name
        runs.stdin.close()
