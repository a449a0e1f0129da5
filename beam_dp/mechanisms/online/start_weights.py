"""The start of online multiplicative weights: uniform, a release, or public weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beam_dp.errors import InputError
from beam_dp.mechanisms.online.private_mw_plan import (
    START_SHARE,
    PrivateMWPlan,
)
from beam_dp.queries.workload import marginals
from beam_dp.releases import SyntheticDatabase

Start = SyntheticDatabase | ArrayLike


def start_weights(plan: PrivateMWPlan, start: Start | None) -> NDArray[np.float64]:
    """Returns the logarithms of the first hypothesis, shape (num_cells,).

    Raises:
        InputError: if the start is of another domain, or is no distribution.
    """
    num_cells = plan.domain.num_cells
    if start is None:
        return np.zeros(num_cells)
    if isinstance(start, SyntheticDatabase):
        (table,) = start.answer(marginals(plan.domain, attributes=plan.domain.names))
        start = table.values
    try:
        weights = np.asarray(start, np.float64).ravel()
    except (TypeError, ValueError):
        raise InputError("start", type(start).__name__, "must be weights, one a cell") from None
    if weights.shape != (num_cells,):
        raise InputError("start", weights.shape, f"must be {num_cells} weights, one a cell")
    total = float(weights.sum())
    if not (bool((weights >= 0).all()) and 0 < total < np.inf):
        raise InputError("start", total, "weights must be finite and >= 0, and not all 0")
    mixed = (1 - START_SHARE) * weights / total + START_SHARE / num_cells
    return np.asarray(np.log(mixed), np.float64)
