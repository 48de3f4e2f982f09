"""The same study twice: neither the order of hashes nor the number of threads changes a table.

Stores and tables are the same bytes, gradients apart.  In a backward pass threads share a product
of matrices, and some processors then add up its terms in another order.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
from toy_corpora import write

ROOT = Path(__file__).resolve().parent.parent
SUBJECTS = ("The cat", "A small dog", "My old friend", "Her sister", "The rain")
ENDS = ("sat on the mat", "watched it from afar", "came home late", "lives in London")
# Relative.  The tables have six digits, and a last bit of float32 changes the sixth by one at most,
# which was measured to be 8.1e-6 between one thread and two, three or four, with
# ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=SSE41.
GRADIENT_TOLERANCE = 2e-5
RUN = """
import sys
from helpers.analysis.coreference import coreference_table, judge
from helpers.analysis.head_counts import count_heads
from helpers.analysis.surface import ENTROPY, RELATIVE_POSITION, TOKEN_TYPES, head_table
from helpers.analysis.dependency_heads import dependency_heads
from helpers.run.record import save_description
from helpers.study import Study

model, text, vectors = sys.argv[1:]
study = Study(
    model=model, text=text, vectors=vectors, name="tiny", segments=8, sentences=24,
    gradient_segments=4, max_tokens=64, seeds=1, device="cpu",
)
study.save_table(head_table(study.sums, RELATIVE_POSITION + TOKEN_TYPES + ENTROPY), "section_3")
study.save_table(study.distances(), "head_distances")
study.save_table(study.gradient_table(), "gradients")
study.save_table(dependency_heads(count_heads(study.treebank_store()), minimum=5), "heads")
study.save_table(coreference_table(judge(study.coreference_store())), "coreference")
for name, table in study.probe_tables().items():
    study.save_table(table, name)
save_description(study)
"""


def start(folder, hash_seed, threads, *arguments):
    """Start a run that has nothing in common with another but its arguments."""
    own = {f"ATTENTION_{kind.upper()}": str(folder / kind) for kind in ("cache", "figures")}
    own |= {f"{library}_NUM_THREADS": str(threads) for library in ("OMP", "MKL", "OPENBLAS")}
    return subprocess.Popen(
        [sys.executable, "-c", RUN, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **own, "PYTHONHASHSEED": str(hash_seed)},
        stderr=subprocess.PIPE,
        text=True,
    )


def contents(folder, pattern):
    found = {path.relative_to(folder): path.read_bytes() for path in folder.glob(pattern)}
    assert found
    return found


def assert_same_tables(first_folder, second_folder):
    first = contents(first_folder, "*/tables/*.csv")
    second = contents(second_folder, "*/tables/*.csv")
    assert len(first) >= 7
    assert first.keys() == second.keys()
    for name in first:
        if name.stem == "gradients":
            tables = [pd.read_csv(folder / name) for folder in (first_folder, second_folder)]
            pd.testing.assert_frame_equal(*tables, rtol=GRADIENT_TOLERANCE, atol=0)
        else:
            assert first[name] == second[name], name


def test_hash_order_and_threads_change_no_table_and_no_store(tiny_folder, tmp_path):
    documents = (  # no two alike
        "\n".join(f"{SUBJECTS[n % 5]} {end} {'and then ' * (n // 5)}once again." for end in ENDS)
        for n in range(10)
    )
    words = sorted({word for line in (*SUBJECTS, *ENDS) for word in line.lower().split()})
    rows = (f"{word} {i % 3} {i % 5} {i % 7}" for i, word in enumerate(words))
    text = write(tmp_path, "text.txt", "\n\n".join(documents))
    vectors = write(tmp_path, "vectors.txt", "\n".join(rows))
    folders = [tmp_path / "one", tmp_path / "two"]
    runs = [
        start(folder, seed, threads, tiny_folder("bert"), text, vectors)
        for folder, seed, threads in zip(folders, (0, 4242), (1, 2), strict=True)
    ]
    for run in runs:
        _, errors = run.communicate(timeout=300)
        assert run.returncode == 0, errors
    assert_same_tables(folders[0] / "figures", folders[1] / "figures")
    stores = [contents(folder / "cache", "*--*/*") for folder in folders]
    assert stores[0] == stores[1]
    for folder in folders:
        run = json.loads((folder / "figures/tiny/run.json").read_text())
        assert run["settings"]["seed"] == 0 and run["settings"]["segments"] == 8
        assert run["model"]["weights_sha256"] and run["versions"]["torch"] and "commit" in run
