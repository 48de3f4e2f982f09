"""What the tests of figures share: the texts shown, and colours as colour-blind people see them."""

import matplotlib as mpl
import numpy as np
from matplotlib.colors import to_rgb


def shown_texts(figure):
    figure.draw_without_rendering()
    axes = [axis for each in figure.axes for axis in (each.xaxis, each.yaxis)]
    ticks = [tick for axis in axes for tick in (*axis.majorTicks, *axis.minorTicks)]
    # matplotlib keeps labels of ticks that it does not draw
    skipped = {id(label) for tick in ticks for label in (tick.label1, tick.label2)}
    texts = figure.findobj(lambda artist: isinstance(artist, mpl.text.Text))
    return [text for text in texts if text.get_text().strip() and id(text) not in skipped]


DEFICIENCIES = {
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritan": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}


def lab(color, matrix):
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(matrix) @ linear, 0, 1)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = np.cbrt(np.array(to_xyz) @ seen / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])
