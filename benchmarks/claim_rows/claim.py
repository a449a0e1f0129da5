"""A statement of the literature, what is wrong with it in print, and how it is measured here."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from scipy.stats import binom

# A true statement is called broken with this probability at most.
ALARM = 1e-9


@dataclasses.dataclass(frozen=True)
class Failures:
    """How often a bound that may fail did.

    Args:
        failed: trials in which something was wrong by more than the bound.
        trials: independent of each other, with real noise.
        allowed: the failure probability that is stated.
        median: of the largest error of a trial, as a share of the bound.
    """

    failed: int
    trials: int
    allowed: float
    median: float

    @property
    def holds(self) -> bool:
        """Whether a true statement fails this often with probability 1e-9 at least."""
        return self.failed <= binom.isf(ALARM, self.trials, self.allowed)

    def __str__(self) -> str:
        told = f"{self.failed:,} of {self.trials:,} trials fail, {self.allowed:.3g} allowed"
        return f"{told}; median {self.median:.2g} of the bound"


@dataclasses.dataclass(frozen=True)
class Slack:
    """The largest value that was seen of what a bound holds for, always.

    Args:
        seen: the largest.
        bound: on it.
        cases: that were tried.
        unit: of both, in the plural.
    """

    seen: float
    bound: float
    cases: int
    unit: str

    @property
    def holds(self) -> bool:
        """Whether the bound holds, but for the last digits of a double."""
        return self.seen <= self.bound * (1 + 1e-9)

    def __str__(self) -> str:
        told = f"at most {self.seen:.4g} of {self.bound:.4g} {self.unit}"
        cases = "1 case" if self.cases == 1 else f"{self.cases:,} cases"
        return f"{told} in {cases} ({self.seen / self.bound:.2f})"


@dataclasses.dataclass(frozen=True)
class Agreement:
    """How far a formula is from brute force.

    Args:
        difference: the largest, absolute; 0 of integers.
        cases: that were compared.
        against: what, in a few words.
        tolerance: that rounding explains.
    """

    difference: float
    cases: int
    against: str
    tolerance: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether all cases agree."""
        return math.isfinite(self.difference) and self.difference <= self.tolerance

    def __str__(self) -> str:
        told = "equal" if self.difference == 0 else f"within {self.difference:.1g}"
        return f"{told} in {self.cases:,} cases, against {self.against}"


Measured = Failures | Slack | Agreement


@dataclasses.dataclass(frozen=True)
class Claim:
    """One row of docs/claims.md.

    Args:
        key: what ``--only`` selects, such as ``small_db.size``; the first part names the file.
        source: author, year, number of the statement.
        statement: in the notation of the page, as Markdown.
        here: the corrected form, or the name of what computes it.
        measure: how it is measured, from a number of trials; several results where settings differ.
        printed: what is wrong in print; empty where nothing is.
        trials: of ``--quick``, which makes the page; all of it takes ten times as many.
    """

    key: str
    source: str
    statement: str
    here: str
    measure: Callable[[int], Measured | list[Measured]]
    printed: str = ""
    trials: int = 2000

    def results(self, trials: int) -> list[Measured]:
        """Returns what was measured."""
        found = self.measure(trials)
        return found if isinstance(found, list) else [found]


def failures(errors_of_bound: list[float], allowed: float) -> Failures:
    """Returns how often a bound failed, from each trial's largest error as a share of its bound."""
    ordered = sorted(errors_of_bound)
    failed = sum(each > 1 for each in ordered)
    return Failures(failed, len(ordered), allowed, ordered[len(ordered) // 2])
