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
from golden.runs import CORPORA

ROOT = Path(__file__).resolve().parent.parent
# A relative tolerance.  The tables have six digits, and the last bit of float32 changes the sixth
# by at most one.  The measured difference between one thread and two, three or four is 8.1e-6, with
# ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=SSE41.
GRADIENT_TOLERANCE = 2e-5
STUDY_SCRIPT = """
import sys
from helpers.metrics.coreference import antecedents, coreference_table, count_rules
from helpers.metrics.head_counts import count_heads
from helpers.metrics.clustering import distances
from helpers.metrics.surface import ENTROPY, RELATIVE_POSITION, TOKEN_TYPES, head_table, sums
from helpers.metrics.dependency_heads import dependency_heads
from helpers.gradients import gradient_table
from helpers.probes import training
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
training.MIN_UPDATES = 30
controls = [study.treebank_store(name) for name in ("random", "random-1")]
matched = study.treebank_store("entropy-matched")
for name, table in table3(treebank, controls, matched, study.embeddings, seeds=1).items():
    study.save_table(table, name)
study.save_facts([store])
"""


def start_study(folder, *arguments, hash_seed, threads):
    """Start a study in a process with a cache and a results folder of its own."""
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        environment[name] = str(threads)
    for name in ("cache", "build"):
        environment[f"ATTENTION_{name.upper()}"] = str(folder / name)
    command = [sys.executable, "-c", STUDY_SCRIPT, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)


def read_files(folder, pattern):
    """Read the files of a folder that match a pattern, by relative path."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.glob(pattern)}


def test_hash_seed_and_threads_change_no_table_and_no_store(tiny_folder, tmp_path):
    arguments = (tiny_folder("bert"), CORPORA / "articles", CORPORA / "vectors.txt")
    folders = [tmp_path / "first", tmp_path / "second"]
    first = start_study(folders[0], *arguments, hash_seed=0, threads=1)
    second = start_study(folders[1], *arguments, hash_seed=4242, threads=2)
    for process in (first, second):
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    tables, repeated = (read_files(folder / "build", "*/tables/*.csv") for folder in folders)
    assert len(tables) >= 7 and tables.keys() == repeated.keys()
    for name in tables:
        if name.stem == "gradients":
            pair = [pd.read_csv(folder / "build" / name) for folder in folders]
            pd.testing.assert_frame_equal(*pair, rtol=GRADIENT_TOLERANCE, atol=0)
        else:
            assert tables[name] == repeated[name], name
    stores, repeated = (read_files(folder / "cache", "*--*/*") for folder in folders)
    assert len(stores) > 9 and stores == repeated
    record = json.loads((folders[0] / "build/tiny/run.json").read_text())
    assert record["settings"]["segments"] == 8 and record["model"]["weights_sha256"]
    assert record["versions"]["torch"] and "commit" in record
