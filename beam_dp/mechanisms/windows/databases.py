"""A synthetic database of each window, by any mechanism that makes one of marginals."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from beam_dp.checks import check_is, checked_integer
from beam_dp.errors import InputError
from beam_dp.mechanisms.checks import Progress
from beam_dp.mechanisms.contract import Plan
from beam_dp.mechanisms.marginals.measurements import Names
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.accounting import discrete_gaussian_mu, zcdp_epsilon, zcdp_rho
from beam_dp.privacy.guarantee import MIN_DELTA, Guarantee
from beam_dp.privacy.ledger.filters import gaussian_epsilon
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.rounding import down, root_down
from beam_dp.privacy.unit_costs import UnitCosts
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.windows.verify import Limits, level_steps
from beam_dp.summaries.histogram import Marginals
from beam_dp.verification.steps import Step
from beam_dp.windows.horizon import Horizon
from beam_dp.windows.unit import (
    MECHANISM,
    WindowUnit,
    stated_promise,
    whole_promise,
    window_promise,
)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class WindowDatabasesPlan(Plan):
    """The public parameters of a synthetic database of each window of a horizon.

    ``guarantee`` and ``loss`` are of the whole promise: of any ``protected_windows`` windows
    together. There are no blocks, and sums of windows can't be answered: the records of a
    synthetic database are no unbiased counts.

    Args: as of ``Plan``, and
        horizon: the windows.
        unit: whom the promise protects.
        window: the plan of one window, under a guarantee of its own.
    """

    mechanism: str = MECHANISM
    horizon: Horizon
    unit: WindowUnit
    window: MarginalsPlan

    @property
    def workload(self) -> Workload:
        """The marginals that each release is made for."""
        return self.window.workload

    @property
    def block(self) -> None:
        """There are no blocks."""

    @property
    def summary_tables(self) -> tuple[Names, ...]:
        """The attribute sets whose exact tables are read of a window."""
        return self.window.summary_tables

    @property
    def steps(self) -> Sequence[Step]:
        """The noise of all windows that are promised together."""
        limits = Limits.of(self.public)
        return level_steps(self.window.steps, "window", limits, None)

    @property
    def unit_costs(self) -> UnitCosts | None:
        """What the records of a unit in each window may cost."""
        return self.window.unit_costs

    @property
    def memory_bytes(self) -> float:
        """Memory of the worker that draws a window, without the exact tables."""
        return self.window.memory_bytes

    @property
    def time_depends_on_data(self) -> bool:
        """Whether the duration of a draw must be kept secret."""
        return self.window.time_depends_on_data

    def draw(
        self,
        number: int,
        marginals: Marginals,
        noise: NoiseSource,
        horizon_id: str,
        progress: Progress | None = None,
    ) -> SyntheticDatabase:
        """Returns the release of one window: with those of the others it keeps ``guarantee``.

        ``marginals``: its exact tables, that hold ``summary_tables``; secret.
        ``horizon_id``: names the horizon, 32 hexadecimal digits.
        ``progress``: called with public quantities.
        """
        checked_integer("number", number, 0, self.horizon.num_windows - 1)
        found = self.window.release(marginals, noise, progress)
        of_window = {"horizon_id": horizon_id, "number": number, **self.public}
        return dataclasses.replace(found, plan={**found.plan, "windows": of_window})

    def _stated(self) -> dict[str, Any]:
        return {
            "window": {
                "mechanism": self.window.mechanism,
                "guarantee": self.window.guarantee.to_json(),
            },
            **stated_promise(self.horizon, self.unit, self.guarantee),
        }


def plan_window_databases(
    mechanism: Mechanism,
    workload: Workload,
    horizon: Horizon,
    unit: WindowUnit,
    epsilon: float,
    delta: float,
    *,
    allow_large_delta: bool = False,
) -> WindowDatabasesPlan:
    """Returns how a synthetic database of each window will be made.

    Privacy: see ``window_mechanism_plan``.

    Args:
        mechanism: that makes each of them.
        workload: the marginals that each is made for; it holds the domain.
        horizon: the windows.
        unit: whom the promise protects, and over how long a time.
        epsilon: of the promise.
        delta: of the promise.
        allow_large_delta: see ``Guarantee``.

    Raises:
        InputError: if a number is out of range, or the mechanism refuses the workload.
    """
    check_is("mechanism", mechanism, Mechanism, methods=("plan", "release"))
    check_is("workload", workload, Workload)
    check_is("horizon", horizon, Horizon)
    check_is("unit", unit, WindowUnit)
    promise = whole_promise(horizon, unit, epsilon, delta, allow_large_delta)
    window = window_mechanism_plan(mechanism, workload, horizon, unit, promise)
    return WindowDatabasesPlan(
        guarantee=promise,
        loss=window.loss.repeated(unit.max_windows_per_unit),
        horizon=horizon,
        unit=unit,
        window=window,
    )


def window_mechanism_plan(
    mechanism: Mechanism,
    workload: Workload,
    horizon: Horizon,
    unit: WindowUnit,
    promise: Guarantee,
) -> MarginalsPlan:
    """Returns the plan of a mechanism for one window, c of which keep a promise together.

    Privacy: of any P consecutive windows a unit is in at most c, each an independent run of the
    mechanism on its own records. Guarantees of one window that are tried: epsilon / c, pure or with
    delta / c; with the mu and the rho of the promise and its delta, that whose mu is mu / sqrt(c),
    that whose rho is rho / c, and the pure one whose rho is rho / c. One is valid if the loss of
    the mechanism's own plan, c times, keeps the promise: in its epsilons, its squares of mu or its
    rhos, with its slacks. Of these the one with the least noise is taken: at the same sensitivity
    the variance of Laplace noise is 1 / rho, that of Gaussian noise 1 / (2 rho). Neighbours: one
    unit is added or removed, at most k records of which are in a window.
    Where the mechanism's plan limits what they cost (``unit_costs``), the records of each window
    are limited as well.

    Reference: Dwork and Roth (2014), Theorem 3.16; Dong, Roth and Su (2022), Corollary 3.3; Bun and
    Steinke (2016), Lemma 2.3.
    """
    most = unit.max_windows_per_unit
    valid: list[MarginalsPlan] = []
    refusals: list[InputError] = []
    for epsilon, delta in _candidates(promise, most):
        try:
            own = window_promise(horizon, unit, epsilon, delta)
            plan = mechanism.plan(workload.domain, workload, own, "noisy")
        except InputError as error:
            refusals.append(error)
            continue
        if _keeps(plan.loss.repeated(most), promise):
            valid.append(plan)
    if not valid:
        raise refusals[0]

    def precision(plan: MarginalsPlan) -> Fraction:
        return (plan.loss.rho or Fraction(0)) * (1 if plan.loss.kind == "pure" else 2)

    return max(valid, key=precision)


def _candidates(promise: Guarantee, num_windows: int) -> Iterator[tuple[float, float]]:
    """Yields guarantees of one window that may compose to a promise."""
    epsilon, delta = promise.epsilon, promise.delta
    shared = down(Fraction(epsilon) / num_windows)
    yield shared, down(Fraction(delta) / num_windows) if delta > 0 else 0.0
    if delta > 0 and num_windows > 1:
        yield shared, 0.0
        mu = discrete_gaussian_mu(epsilon, delta)
        rho = down(Fraction(zcdp_rho(epsilon, delta)) / num_windows)
        yield gaussian_epsilon(root_down(Fraction(mu) ** 2 / num_windows), delta), delta
        yield zcdp_epsilon(rho, delta), delta
        yield root_down(2 * Fraction(rho)), 0.0


def _keeps(loss: Loss, promise: Guarantee) -> bool:
    """Returns whether a loss implies a promise, by any of its bounds."""
    delta = down(Fraction(promise.delta) - loss.slack)
    if loss.epsilon is not None and loss.epsilon <= promise.epsilon and delta >= 0:
        return True
    if delta < MIN_DELTA:
        return False
    if loss.mu is not None and loss.mu <= discrete_gaussian_mu(promise.epsilon, delta):
        return True
    return loss.rho is not None and loss.rho <= zcdp_rho(promise.epsilon, delta)
