"""A deliberate bug of Laplace strategies, for the audits of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from beam_dp.mechanisms.marginals import measurements
from beam_dp.privacy.guarantee import Guarantee


def share_too_much(patch: pytest.MonkeyPatch) -> None:
    """Every Laplace table is given its share of what the one with the largest should get."""
    original = measurements.table_strategy

    def mutant(tables: Any, guarantee: Guarantee, shares: Any = None) -> Any:
        found = original(tables, guarantee, shares)
        least, equal = min(each.scale for each in found), original(tables, guarantee)[0].scale
        return tuple(dataclasses.replace(each, scale=each.scale * least / equal) for each in found)

    patch.setattr(measurements, "table_strategy", mutant)
