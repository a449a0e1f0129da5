"""The table of how each kind of release is verified."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from beam_dp.errors import InputError
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.answers.verify_linear import verify_linear_answers
from beam_dp.releases.answers.verify_online import verify_online
from beam_dp.releases.answers.verify_top import verify_top_queries
from beam_dp.releases.intervals.release import IntervalRelease
from beam_dp.releases.intervals.verify import verify_intervals
from beam_dp.releases.release import Release
from beam_dp.releases.sketches.release import SparseRelease
from beam_dp.releases.sketches.verify import verify_sketch
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.windows.horizon import HorizonRelease
from beam_dp.releases.windows.verify import verify_database, verify_horizon, verify_window
from beam_dp.releases.windows.window import WindowTables
from beam_dp.verification.fields import misread
from beam_dp.verification.verdict import Verification

# What a card without a field, or with one of another type, may raise.
_DAMAGE = (ArithmeticError, AssertionError, LookupError, TypeError, ValueError)


def verify_answers(release: AnswersRelease) -> Verification:
    """Returns what the card of answers comes to: noise on each, or a hypothesis that learns."""
    plan = release.card.get("plan")
    if not isinstance(plan, Mapping):
        raise InputError("plan", plan, "must be there: without it no noise is stated")
    if "choice" in plan:
        return verify_top_queries(release)
    return verify_linear_answers(release) if "distribution" in plan else verify_online(release)


VERIFIERS: dict[type[Release | HorizonRelease], Callable[[Any], Verification]] = {
    SyntheticDatabase: verify_database,
    IntervalRelease: verify_intervals,
    SparseRelease: verify_sketch,
    AnswersRelease: verify_answers,
    WindowTables: verify_window,
    HorizonRelease: verify_horizon,
}


def verify_release(release: Release | HorizonRelease) -> Verification:
    """Recomputes what a release reveals from the noise that its card states.

    For each step the scale and the sensitivity give what it reveals; steps are composed, and
    converted to epsilon at the card's delta, by arithmetic that never states less than is true.
    Figures that follow from others are recomputed and compared to 1e-9. Nobody can tell from a
    release that its noise was drawn as it says: this checks that what it says keeps its promise.

    Args:
        release: from ``read_release`` or ``read_windows``, which compare the checksums.

    Returns:
        The steps, the total, the faults; see ``Verification.holds``.

    Raises:
        InputError: if the card lacks what the loss follows from, naming the field.

    Cost: tenths of a second; for linear answers that of ``workload_sensitivity``, for a horizon
    that of reading all its windows.

    Example:
        >>> verify_release(read_release("out/visits")).holds  # doctest: +SKIP
        True
    """
    try:
        found = VERIFIERS[type(release)](release)
        if isinstance(release, HorizonRelease):
            return found
        return dataclasses.replace(found, faults=(*found.faults, *misread(release)))
    except InputError:
        raise
    except _DAMAGE as error:
        words = str(error.args[0])[:80] if error.args else type(error).__name__
        condition = f"lacks a field that its loss follows from, or has another type: {words}"
        raise InputError("card", type(release).__name__, condition) from None
