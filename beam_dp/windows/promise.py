"""The guarantee of a windowed release as a whole, and that of one window."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import MAX_RECORDS_PER_UNIT, RECORD, Guarantee, Neighboring
from beam_dp.privacy.rounding import up
from beam_dp.windows.horizon import Horizon
from beam_dp.windows.unit import WindowUnit

MECHANISM = "windows"
LEVELS_CONDITION = (
    "needs a promise for the whole horizon: protected_windows of all its windows, or records"
)


def whole_promise(
    horizon: Horizon,
    unit: WindowUnit,
    epsilon: float,
    delta: float,
    allow_large_delta: bool = False,
) -> Guarantee:
    """Returns the guarantee of all windows that are protected together.

    Neighbours differ by one unit that is added or removed: one that is replaced would move between
    windows, none of which has a public number of records. Its ``max_records_per_unit`` is k c, how
    many records of a unit are used in any P consecutive windows: that is what the guarantee is of,
    as its unit says in words, and the L1 distance of tables follows from it alone. That no more
    than k of them are in one window makes the L2 distance smaller, and is in the plan.
    """
    if unit.protected_windows > horizon.num_windows:
        condition = f"must be at most the {horizon.num_windows:,} windows of the horizon"
        raise InputError("protected_windows", unit.protected_windows, condition)
    if unit.max_records_per_unit * unit.max_windows_per_unit > MAX_RECORDS_PER_UNIT:
        condition = "must be at most 2^40, times max_windows_per_unit"
        raise InputError("max_records_per_unit", unit.max_records_per_unit, condition)
    return Guarantee(
        epsilon,
        delta,
        Neighboring.ADD_OR_REMOVE_ONE,
        _protected(horizon, unit, unit.protected_windows),
        unit.max_records_per_unit * unit.max_windows_per_unit,
        allow_large_delta,
    )


def window_promise(horizon: Horizon, unit: WindowUnit, epsilon: float, delta: float) -> Guarantee:
    """Returns a guarantee of one window alone; the whole promise is composed of these."""
    protected = _protected(horizon, unit, 1)
    relation = Neighboring.ADD_OR_REMOVE_ONE
    return Guarantee(epsilon, delta, relation, protected, unit.max_records_per_unit, True)


def protects_horizon(horizon: Horizon, unit: WindowUnit) -> bool:
    """Returns whether the promise covers the whole horizon, as it does for a record."""
    return unit.privacy_unit == RECORD or unit.protected_windows == horizon.num_windows


def stated_promise(horizon: Horizon, unit: WindowUnit, guarantee: Guarantee) -> dict[str, Any]:
    """Returns the promise as cards state it, and the worst case over the whole horizon.

    Privacy: the horizon is at most ceil(W / P) runs of P windows, each of which is (epsilon,
    delta)-private whatever the others released; their epsilons and deltas add up.
    """
    periods = 1
    if not protects_horizon(horizon, unit):
        periods = -(-horizon.num_windows // unit.protected_windows)
    epsilon = up(periods * Fraction(guarantee.epsilon))
    delta = min(up(periods * Fraction(guarantee.delta)), 1.0)
    protected, most = unit.protected_windows, unit.max_windows_per_unit
    spent = f"epsilon {guarantee.epsilon:g}, delta {guarantee.delta:g}"
    together = f"all {horizon.num_windows:,} windows together"
    if unit.privacy_unit == RECORD:
        words = f"a record counts in one window; {together} reveal of it at most {spent}"
    else:
        among = f"at most {most:,} of any {protected:,} consecutive windows"
        words = (
            f"records of one {unit.privacy_unit} are used in {among} of {horizon.window_text},"
            f" at most {unit.max_records_per_unit:,} in each; so many windows together reveal of"
            f" them at most {spent}"
        )
        if periods > 1:
            words += f", and {together} at most epsilon {epsilon:g}, delta {delta:g}"
    return {
        "horizon": dataclasses.asdict(horizon),
        "max_records_per_unit": unit.max_records_per_unit,
        "max_windows_per_unit": most,
        "protected_windows": protected,
        "promise": words,
        "worst_case": {"periods": periods, "epsilon": epsilon, "delta": delta},
    }


def _protected(horizon: Horizon, unit: WindowUnit, num_windows: int) -> str:
    """Returns the privacy unit in words that a ledger compares: a unit in ``num_windows``."""
    if unit.privacy_unit == RECORD:
        return RECORD
    windows = f"window of {horizon.window_text}"
    if num_windows > 1:
        windows = f"{num_windows} consecutive windows of {horizon.window_text}"
    # Windows of another grid overlap two of these: losses of both do not simply add up.
    shift = horizon.start % horizon.window
    shifted = f", {shift} s after multiples of it since 1970" if shift else ""
    return f"{unit.privacy_unit} in any {windows}{shifted}"
