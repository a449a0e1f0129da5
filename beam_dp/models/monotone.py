"""The nearest numbers that never decrease."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def nearest_increasing(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the nearest numbers, in the sum of squares, that never decrease.

    Decreasing neighbours are replaced by the mean of these neighbours, repeatedly; the result does
    not depend on the order of the replacements (Barlow and others, 1972).
    """
    means: list[float] = []
    sizes: list[int] = []
    for value in values.tolist():
        mean, size = value, 1
        while means and means[-1] >= mean:
            before = sizes.pop()
            mean = (mean * size + means.pop() * before) / (size + before)
            size += before
        means.append(mean)
        sizes.append(size)
    return np.repeat(means, sizes)
