"""Values that jobs are described by: guarantees and mechanisms."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from surfaces import Surface

import beam_dp as dp

nan, inf = math.nan, math.inf


def guarantee(**changed: Any) -> dp.Guarantee:
    """A valid guarantee, but for what is changed."""
    valid: dict[str, Any] = {
        "epsilon": 1.0,
        "delta": 1e-9,
        "neighboring": "add_or_remove_one",
        "privacy_unit": "record",
        "max_records_per_unit": 1,
    }
    return dp.Guarantee(**{**valid, **changed})


SURFACES: dict[str, Surface] = {
    "Guarantee": {"guarantee": guarantee, "nan": nan, "inf": inf, "Fraction": Fraction},
    "mechanisms": {**vars(dp), "dp": dp, "nan": nan, "inf": inf},
}
