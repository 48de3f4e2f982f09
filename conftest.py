"""Settings of pytest that let it run notebooks as tests, and tests in two processes."""

import os
import shutil
import tempfile
from pathlib import Path

# Two processes run tests, and each starts kernels and commands: with a thread for each processor in
# all of them, threads would wait for each other.  Torch reads this when it is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Inherited by the kernels: the quick preset, and where results go, which do not belong in figures/
# and build/.
QUICK = os.environ.setdefault("ATTENTION_PROFILE", "quick") == "quick"
results = tempfile.TemporaryDirectory(prefix="results-")  # removed when pytest ends
if not QUICK:  # intervals are adjusted for the number of claims in the tables of all notebooks
    shutil.copytree(Path(__file__).parent / "figures", f"{results.name}/figures")
os.environ.setdefault("ATTENTION_FIGURES", f"{results.name}/figures")
os.environ.setdefault("ATTENTION_BUILD", f"{results.name}/build")
if QUICK:  # the maps of tests are kept for the next tests, apart from those of the user
    test_cache = Path(__file__).parent / ".pytest_cache" / "attention"
    os.environ.setdefault("ATTENTION_CACHE", str(test_cache))
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TQDM_DISABLE", "1")  # a bar would be an output that differs between runs


# The longest files run first: a process that starts one of them last would end long after the
# other process.
LONGEST = (
    "tests/golden/",
    "tests/test_notebooks.py",
    "notebooks/",
    "tests/test_run.py",
    "tests/run/",
    "tests/store/",
    "tests/model/",
    "tests/test_reproducibility.py",
    "tests/test_book.py",
    "tests/beyond/pages/",
    "tests/plots/",
    "tests/viewer/",
)


def pytest_configure(config):
    """Have pytest-xdist keep the order of files, and nbval check quick runs laxly."""
    config.option.loadscopereorder = False
    if QUICK:
        config.option.nbval_lax = True


def pytest_report_header(config):
    """Say how notebooks are checked."""
    size = "on a small sample" if QUICK else "at full size"
    if config.option.nbval_lax:
        return f"notebooks: lax {size}: cells run; `make strict` also compares their outputs"
    return f"notebooks: strict {size}: texts and tables are compared with the committed outputs"


def pytest_collection_modifyitems(items):
    """Put the files that take longest first."""

    def rank(test):
        for position, start in enumerate(LONGEST):
            if test.nodeid.startswith(start):
                return position
        return len(LONGEST)

    items.sort(key=rank)


def pytest_collectstart(collector):
    """Let progress bars and warnings on stderr differ between runs."""
    if hasattr(collector, "skip_compare"):
        collector.skip_compare += ("stderr",)
