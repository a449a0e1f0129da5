"""Verifying a release of any kind: what it reveals follows from the noise that its card states."""

from __future__ import annotations

import dataclasses

from beam_dp.errors import InputError
from beam_dp.releases.kinds import of_kind, part
from beam_dp.releases.release import AnyRelease, Release
from beam_dp.verification.fields import misread
from beam_dp.verification.verdict import Verification

# What a card without a field, or with one of another type, may raise.
_DAMAGE = (ArithmeticError, AssertionError, LookupError, TypeError, ValueError)


def verify_release(release: AnyRelease) -> Verification:
    """Recomputes what a release reveals from the noise that its card states.

    For each step the scale and the sensitivity give what it reveals; steps are composed, and
    converted to epsilon at the card's delta, by arithmetic that never states less than is true.
    Figures that follow from others are recomputed and compared to 1e-9. No one can tell from a
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
        found: Verification = of_kind("verify", release)
        if not isinstance(release, Release):
            return found
        if release.plan.get("windows") is not None:
            found = part("window_tables", "verify").of_one_window(found, release)
        return dataclasses.replace(found, faults=(*found.faults, *misread(release)))
    except InputError:
        raise
    except _DAMAGE as error:
        words = str(error.args[0])[:80] if error.args else type(error).__name__
        condition = f"lacks a field that its loss follows from, or has another type: {words}"
        raise InputError("card", type(release).__name__, condition) from None
