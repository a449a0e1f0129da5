"""What all audits share: findings, mutants, and whole runs that tell two neighbours apart."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from beam_dp.privacy.guarantee import Guarantee
from beam_dp.testing import audit

Patch = pytest.MonkeyPatch
Bug = Callable[[Patch], None]
Laws = tuple[audit.Law, audit.Law]


@dataclasses.dataclass(frozen=True)
class Finding:
    """The result of one check: whether the mechanism passes, and the numbers of the table."""

    passes: bool
    lower_bound: float | None = None
    predicted: float | None = None
    is_blind: bool = False
    is_refuted: bool = False
    blind_by_chance: float | None = None


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A deliberate bug, and the check that must fail while it is in.

    One that ``blinds`` leaks too little instead of too much: the check must say that it is blind.
    """

    apply: Bug
    caught_by: str
    blinds: bool = False


@dataclasses.dataclass(frozen=True)
class Audit:
    """All checks of one mechanism under one relation."""

    mechanism: str
    guarantee: Guarantee
    checks: Mapping[str, Callable[[], Finding]]
    mutants: Mapping[str, Mutant]


def audited(
    mechanism: str,
    guarantee: Guarantee,
    checks: Mapping[str, Callable[..., Finding]],
    bugs: Mapping[str, Mapping[str, Bug]],
    *case: Any,
    blinding: Mapping[str, Bug] | None = None,
) -> Audit:
    """Returns the audit of a mechanism.

    Args:
        mechanism: its name in the table.
        guarantee: the promise.
        checks: by name; each is called with ``case``.
        bugs: by the check that must catch them.
        case: what the checks are called with.
        blinding: bugs that add noise, so that "black box" must say that it is blind.
    """
    mutants = {
        name: Mutant(apply, check) for check, found in bugs.items() for name, apply in found.items()
    }
    mutants |= {
        name: Mutant(apply, "black box", blinds=True) for name, apply in (blinding or {}).items()
    }
    held = {name: functools.partial(check, *case) for name, check in checks.items()}
    return Audit(mechanism, guarantee, held, mutants)


def replaced(place: Any, name: str, by: Any) -> Bug:
    """Returns the bug of another value in the place of an attribute."""
    return lambda patch: patch.setattr(place, name, by)


def around(place: Any, name: str, by: Callable[..., Any]) -> Bug:
    """Returns the bug of another function, which is called with the original one first."""

    def mutate(patch: Patch) -> None:
        original = getattr(place, name)
        patch.setattr(place, name, lambda *given, **named: by(original, *given, **named))

    return mutate


def repeated(draw: Callable[[], Any]) -> Callable[[int], list[Any]]:
    """Returns the runs of a function, as an audit asks for them."""
    return lambda runs: [draw() for _ in range(runs)]


def ratio_of(laws: Laws) -> Callable[[Any], float]:
    """Returns the log-likelihood ratio of an outcome under two laws."""
    first, second = laws
    return lambda outcome: round(math.log(first[outcome] / second[outcome]), 6)


# Shares of the runs, as divisors, with which a check looks for a leak before it takes all of them.
# Only while a mutant is in: most are found by few runs.
LOOKS: tuple[int, ...] = ()


def told_apart(
    sides: Iterable[Any],
    guarantee: Guarantee,
    *,
    runs: int,
    foresee: Callable[[], Mapping[str, Any]] = dict,
    **options: Any,
) -> Finding:
    """Returns what runs on two neighbours show, by ``audit_black_box`` with its options.

    ``foresee``: gives options that take runs of their own, so not while few runs are looked at.
    """
    audited = functools.partial(
        audit.audit_black_box, *sides, guarantee.epsilon, guarantee.delta, **options
    )
    for share in LOOKS:
        found = audited(runs=runs // share)
        if found.is_refuted or found.is_off_its_law:
            break
    else:
        found = audited(runs=runs, **foresee())
    numbers = (field.name for field in dataclasses.fields(Finding))
    return Finding(**{name: getattr(found, name) for name in numbers})
