"""The committed results."""

from pathlib import Path


def committed_figures() -> Path:
    """Return ``figures/``, which no run writes to; scripts/publish.py does."""
    return Path(__file__).parents[1] / "figures"
