"""Made-up tables and searches in figures, for the tests of figures."""

import matplotlib as mpl
import numpy as np
import pandas as pd

from helpers.plots.style import WIDTH, title_of

BERT = {"cls": "[CLS]", "sep": "[SEP]"}
LONG_NAME = "a-large-organisation/a-sentence-encoder-of-a-long-name-v2-xl"  # 60 characters
METRICS = [
    *("cls", "sep", "punctuation", "sep_to_sep", "other_to_sep", "entropy", "entropy_from_cls"),
    *("previous", "current", "next", "cls_to_cls", "other_to_cls"),
]


def head_table(layers=3, heads=4, seed=0):
    """Make a table of section 3 with random averages and intervals from 0.4 to 0.6."""
    rng = np.random.default_rng(seed)
    layer, head = np.divmod(np.arange(layers * heads), heads)
    table = pd.DataFrame({"layer": layer + 1, "head": head + 1, "uniform": np.log(90)})
    for name in METRICS:
        table[name] = rng.uniform(0, 1, len(table))
        table[f"{name}_low"] = 0.4
        table[f"{name}_high"] = 0.6
    return table.assign(uniform_previous=0.25, uniform_current=0.5, uniform_next=0.1)


def intervals(axes):
    """List the ends of the horizontal intervals in axes."""
    ends = []
    for lines in axes.collections:
        for (low, _), (high, _) in lines.get_segments():
            ends.append((low, high))
    return ends


def shown_texts(figure):
    """List the texts of a figure that matplotlib draws; it keeps labels of ticks it skips."""
    figure.draw_without_rendering()
    # As `save_figure` does: the layout takes most of the time, and one is enough for all checks.
    figure.set_layout_engine(None)
    skipped = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            for tick in (*axis.majorTicks, *axis.minorTicks):
                skipped |= {id(tick.label1), id(tick.label2)}
    texts = figure.findobj(lambda artist: isinstance(artist, mpl.text.Text))
    return [text for text in texts if text.get_text().strip() and id(text) not in skipped]


def texts_outside(figure):
    """List the texts that reach over the edge of a figure, except labels of points."""
    outside = []
    for text in shown_texts(figure):
        if text.axes is not None and text in text.axes.texts:
            continue  # labels of points have a test of their own
        box = mpl.text.Text.get_window_extent(text)
        is_inside_across = box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1
        if not is_inside_across or box.y0 < -1 or box.y1 > figure.bbox.y1 + 1:
            outside.append(text.get_text())
    return outside


def check_figure(figure):
    """Check that a figure has the width of a column, type that can be read, and all in view."""
    assert figure.get_figwidth() == WIDTH
    assert not texts_outside(figure), title_of(figure)
    sizes = [text.get_fontsize() for text in shown_texts(figure)]
    assert min(sizes) >= 6.5, title_of(figure)


def check_long_name(figure):
    """Check that all of `LONG_NAME` is in a figure, and no text outside."""
    assert not texts_outside(figure)
    joined = "".join(text.get_text() for text in figure.texts)
    assert LONG_NAME in joined.replace("\n", "")


def checked(figure):
    """Check a figure that was drawn for a model with `LONG_NAME`, and return it."""
    check_long_name(figure)
    check_figure(figure)
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
