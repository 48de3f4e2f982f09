"""The same study twice: neither the order of hashes nor the number of threads changes a table.

Stores and tables are the same bytes, except gradients.  In a backward pass threads share a matrix
product, and some processors then add up its terms in a different order.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from toy_corpora import write

ROOT = Path(__file__).resolve().parent.parent
SUBJECTS = ("The cat", "A small dog", "My old friend", "Her sister", "The rain")
ENDS = ("sat on the mat", "watched it from afar", "came home late", "lives in London")
# A relative tolerance.  The tables have six digits, and the last bit of float32 changes the sixth
# by at most one.  The measured difference between one thread and two, three or four is 8.1e-6, with
# ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=SSE41.
GRADIENT_TOLERANCE = 2e-5
STUDY_SCRIPT = """
import sys
from helpers.metrics.coreference import antecedents, coreference_table, count_rules
from helpers.metrics.head_counts import count_heads
from helpers.metrics.head_distance import distances
from helpers.metrics.surface import ENTROPY, RELATIVE_POSITION, TOKEN_TYPES, head_table, sums
from helpers.metrics.dependency_heads import dependency_heads
from helpers.gradients import gradient_table
from helpers.probes.table3 import table3
from helpers.study import Study

model, text, vectors = sys.argv[1:]
study = Study(
    model=model, text=text, vectors=vectors, name="tiny", segments=8, sentences=24,
    gradient_segments=4, max_tokens=64, seeds=1, seed=0, device="cpu",
)
store = study.segment_store()
section_3 = head_table(sums(store), RELATIVE_POSITION + TOKEN_TYPES + ENTROPY)
study.save_table(section_3, "section_3")
study.save_table(distances(store)[0], "head_distances")
study.save_table(gradient_table(study.encoder, store, count=4, seed=0), "gradients")
treebank = study.treebank_store()
study.save_table(dependency_heads(count_heads(treebank), minimum=5), "heads")
documents = study.coreference_store()
rules = count_rules(documents.records())
study.save_table(coreference_table(antecedents(documents), rules), "coreference")
controls = [study.treebank_store(name) for name in ("random", "random-1")]
matched = study.treebank_store("entropy-matched")
for name, table in table3(treebank, controls, matched, study.embeddings, seeds=1).items():
    study.save_table(table, name)
study.save_facts([store])
"""


def start_study(folder, *arguments, hash_seed, threads):
    """Start a study in a process with a cache and a results folder of its own."""
    environment = {
        **os.environ,
        "ATTENTION_CACHE": str(folder / "cache"),
        "ATTENTION_BUILD": str(folder / "build"),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
        "PYTHONHASHSEED": str(hash_seed),
    }
    return subprocess.Popen(
        [sys.executable, "-c", STUDY_SCRIPT, *map(str, arguments)],
        cwd=ROOT,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_files(folder, pattern):
    """Read the files of a folder that match a pattern, by relative path; there must be some."""
    contents = {path.relative_to(folder): path.read_bytes() for path in folder.glob(pattern)}
    assert contents
    return contents


def write_corpora(folder):
    """Write a text of ten different documents and vectors of its words; return the paths."""
    documents = []
    for number in range(10):
        subject = SUBJECTS[number % 5]
        repetition = "and then " * (number // 5)
        lines = [f"{subject} {end} {repetition}once again." for end in ENDS]
        documents.append("\n".join(lines))
    words = set()
    for line in (*SUBJECTS, *ENDS):
        words.update(line.lower().split())
    rows = [f"{word} {i % 3} {i % 5} {i % 7}" for i, word in enumerate(sorted(words))]
    text = write(folder, "text.txt", "\n".join(documents))
    vectors = write(folder, "vectors.txt", "\n".join(rows))
    return text, vectors


def assert_same_tables(first_folder, second_folder):
    first = read_files(first_folder, "*/tables/*.csv")
    second = read_files(second_folder, "*/tables/*.csv")
    assert len(first) >= 7
    assert first.keys() == second.keys()
    for name in first:
        if name.stem == "gradients":
            pd.testing.assert_frame_equal(
                pd.read_csv(first_folder / name),
                pd.read_csv(second_folder / name),
                rtol=GRADIENT_TOLERANCE,
                atol=0,
            )
        else:
            assert first[name] == second[name], name


@pytest.fixture(scope="module")
def folders_of_runs(tiny_folder, tmp_path_factory):
    """Run a study twice, with another hash seed and another number of threads."""
    root = tmp_path_factory.mktemp("reproducibility")
    text, vectors = write_corpora(root)
    arguments = (tiny_folder("bert"), text, vectors)
    first = start_study(root / "first", *arguments, hash_seed=0, threads=1)
    second = start_study(root / "second", *arguments, hash_seed=4242, threads=2)
    for process in (first, second):
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    return root / "first", root / "second"


def test_hash_seed_and_threads_change_no_table(folders_of_runs):
    first, second = folders_of_runs
    assert_same_tables(first / "build", second / "build")


def test_hash_seed_and_threads_change_no_store(folders_of_runs):
    first, second = folders_of_runs
    assert read_files(first / "cache", "*--*/*") == read_files(second / "cache", "*--*/*")


def test_run_json_has_settings_weights_versions_and_commit(folders_of_runs):
    for folder in folders_of_runs:
        run = json.loads((folder / "build/tiny/run.json").read_text())
        assert run["settings"]["seed"] == 0
        assert run["settings"]["segments"] == 8
        assert run["model"]["weights_sha256"]
        assert run["versions"]["torch"]
        assert "commit" in run
