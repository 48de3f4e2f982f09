"""What the tests of figures share: made-up tables, and the texts that are shown."""

import matplotlib as mpl
import numpy as np
import pandas as pd

BERT = {"cls": "[CLS]", "sep": "[SEP]"}
METRICS = [
    *("cls", "sep", "punctuation", "sep_to_sep", "other_to_sep", "entropy", "entropy_from_cls"),
    *("previous", "current", "next"),
]


def head_table(layers=3, heads=4, seed=0):
    rng = np.random.default_rng(seed)
    layer, head = np.divmod(np.arange(layers * heads), heads)
    table = pd.DataFrame({"layer": layer + 1, "head": head + 1, "uniform": np.log(90)})
    bounds = {f"{name}_{side}": x for name in METRICS for side, x in (("low", 0.4), ("high", 0.6))}
    return table.assign(**{name: rng.uniform(0, 1, len(table)) for name in METRICS}, **bounds)


def shown_texts(figure):
    figure.draw_without_rendering()
    axes = [axis for each in figure.axes for axis in (each.xaxis, each.yaxis)]
    ticks = [tick for axis in axes for tick in (*axis.majorTicks, *axis.minorTicks)]
    # matplotlib keeps labels of ticks that it does not draw
    skipped = {id(label) for tick in ticks for label in (tick.label1, tick.label2)}
    texts = figure.findobj(lambda artist: isinstance(artist, mpl.text.Text))
    return [text for text in texts if text.get_text().strip() and id(text) not in skipped]
