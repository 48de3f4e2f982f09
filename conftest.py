"""What pytest needs to know to run the notebooks as tests, and tests in two processes."""

import os
import tempfile

if "PYTEST_XDIST_WORKER" in os.environ:  # before torch is imported; kernels inherit it
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Inherited by the kernels: a small profile, whose results do not belong in figures/.
if os.environ.setdefault("ATTENTION_PROFILE", "small") == "small":
    os.environ.setdefault("ATTENTION_FIGURES", tempfile.mkdtemp(prefix="figures-"))
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def pytest_collectstart(collector):
    """Let progress bars and warnings on stderr differ between runs."""
    if hasattr(collector, "skip_compare"):
        collector.skip_compare += ("stderr",)
