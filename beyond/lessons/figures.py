"""Committed figures of another run, next to those of the run that a reader looks at."""

from __future__ import annotations

from IPython.display import Image, display

from helpers.files import PROJECT_ROOT

SHOWN_WIDTH = 900  # pixels, as wide as the figures of a notebook


def show_committed_figure(name: str, run: str = "smollm2-later") -> None:
    """Show the figure that another run has committed, or say in one line that there is none.

    Parameters
    ----------
    name : str
        The name of the figure, without the suffix, such as "fig15_edges".
    run : str
        The name of the run, a folder in ``figures/``.
    """
    path = PROJECT_ROOT / "figures" / run / f"{name}.png"
    if path.is_file():
        display(Image(path.read_bytes(), format="png", width=SHOWN_WIDTH))
    else:
        print(f"There is no figure {name} of the run {run} here: figures/{run}/ lacks it.")
