"""The differences between processors, whose instructions add up float32 in different orders.

Float32 that torch computes is compared to within some roundings of the largest number that went
into it: scores for weights, logits for losses.  Float64, and counts by hand, are compared to the
digits that the test needs.
"""

import numpy as np

ROUNDINGS = 16
EPSILON = float(np.finfo(np.float32).eps)


def float32_error(*values):
    """Return the absolute error of float32 that was computed from arrays or numbers."""
    largest = max(float(np.abs(np.asarray(value)).max()) for value in values)
    return ROUNDINGS * EPSILON * largest


def weights_error(weights):
    """Return the absolute error of attention weights, whose logarithms are the range of scores."""
    visible = np.asarray(weights)[np.asarray(weights) > 0]
    return float32_error(1.0, np.log(visible.min()))
