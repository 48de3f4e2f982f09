"""Made-up tables and searches in figures, for the tests of figures."""

import numpy as np
import pandas as pd
from matplotlib.text import Text

from helpers.plots.style import WIDTH, title_of

BERT = {"cls": "[CLS]", "sep": "[SEP]"}
LONG_NAME = "a-large-organisation/a-sentence-encoder-of-a-long-name-v2-xl"  # 60 characters
METRICS = (
    "cls", "sep", "punctuation", "sep_to_sep", "other_to_sep", "cls_to_cls", "other_to_cls",
    "entropy",
)  # fmt: skip


def head_table(layers=3, heads=4, seed=0):
    """Make a table of section 3 with random averages and intervals from 0.4 to 0.6."""
    rng = np.random.default_rng(seed)
    layer, head = np.divmod(np.arange(layers * heads), heads)
    table = pd.DataFrame({"layer": layer + 1, "head": head + 1, "uniform": np.log(90)})
    for token_type in ("first", "cls", "sep", "punctuation"):
        table[f"uniform_{token_type}"] = 0.01
    for name in METRICS:
        table[name] = rng.uniform(0, 1, len(table))
        table[f"{name}_low"] = 0.4
        table[f"{name}_high"] = 0.6
    return table


def intervals(axes):
    """List the ends of the horizontal intervals in axes."""
    ends = []
    for lines in axes.collections:
        for (low, _), (high, _) in lines.get_segments():
            ends.append((low, high))
    return ends


def is_inside(figure):
    """Whether all that is drawn, except labels of points, is within the edges of a figure."""
    figure.draw_without_rendering()
    # As `save_figure` does: the layout takes most of the time, and one is enough for all checks.
    figure.set_layout_engine(None)
    for axes in figure.axes:
        for text in axes.texts:
            text.set_in_layout(False)  # labels of points have a test of their own
    box = figure.get_tightbbox()  # in inches
    width, height = figure.get_size_inches()
    is_inside_across = box.x0 > -0.02 and box.x1 < width + 0.02
    return is_inside_across and box.y0 > -0.02 and box.y1 < height + 0.02


def checked(figure):
    """Check a figure that was drawn for a model with `LONG_NAME`, and return it.

    It has the width of a column, type that can be read, and all of the name in view.
    """
    assert is_inside(figure), title_of(figure)
    assert LONG_NAME in "".join(text.get_text() for text in figure.texts).replace("\n", "")
    assert figure.get_figwidth() == WIDTH
    texts = [text for text in figure.findobj(Text) if text.get_text().strip()]
    assert min(text.get_fontsize() for text in texts) >= 6.5, title_of(figure)
    return figure


def drawn_numbers(figure):
    """Collect the numbers that a figure draws: of images, points, lines and bars."""
    numbers = []
    for axes in figure.axes:
        numbers += [image.get_array() for image in axes.images]
        numbers += [collection.get_offsets() for collection in axes.collections]
        for line in axes.lines:
            numbers += [line.get_xdata(), line.get_ydata()]
        numbers += [patch.get_width() for patch in axes.patches]
    return np.concatenate([np.ravel(np.asarray(part, float)) for part in numbers])
