"""Plans that release tables or a synthetic database per window, made before reading records."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar

from beam_dp.checks import check_is, checked_integer
from beam_dp.domain.horizon import (
    MECHANISM,
    Blocks,
    Horizon,
    WindowUnit,
    stated_promise,
    whole_promise,
    window_promise,
)
from beam_dp.domain.universe import Names
from beam_dp.errors import InputError
from beam_dp.mechanisms.checks import check_noise
from beam_dp.mechanisms.contract import Plan
from beam_dp.mechanisms.marginals.measurements import (
    Measurement,
    num_noisy_cells,
    predicted_variance,
)
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism, check_request
from beam_dp.mechanisms.resources import fit_resources
from beam_dp.mechanisms.windows import choices
from beam_dp.mechanisms.windows.choices import Choice, gaussian_level, laplace_level, most_squares
from beam_dp.privacy.accounting import discrete_gaussian_mu, zcdp_epsilon, zcdp_rho
from beam_dp.privacy.budget import Budget
from beam_dp.privacy.guarantee import MIN_DELTA, Guarantee
from beam_dp.privacy.ledger.filters import gaussian_epsilon
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.privacy.rounding import down, root_down, root_up, up
from beam_dp.privacy.steps import Step
from beam_dp.privacy.unit_costs import UnitCosts
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database.measured_tables import (
    MeasuredTable,
    table_steps,
    unbiased_tables,
)
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.windows.horizon_files import HorizonCard
from beam_dp.releases.windows.release import Level, WindowTables, check_subsets
from beam_dp.releases.windows.verify import level_steps
from beam_dp.secret.summaries.histogram import Marginals

# The largest number of coordinates that a unit may move for discrete noise to be as private as
# continuous noise: see ``privacy.ledger.filters``.
_MAX_GAUSSIAN_CELLS = 2**28


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class WindowTablesPlan(Plan):
    """The public parameters for the tables of all windows in a horizon.

    ``guarantee`` and ``loss`` are for any ``protected_windows`` windows together, with their
    blocks. One window by itself reveals less.
    """

    mechanism: str = MECHANISM
    horizon: Horizon
    unit: WindowUnit  # the privacy unit that the guarantee protects
    workload: Workload  # the marginals that are released for each window
    measurements: tuple[Measurement, ...]  # the noisy measurements of each window
    block: int | None = None  # the number of windows in a block
    share: Fraction = Fraction(0)  # the share of the budget for blocks
    block_measurements: tuple[Measurement, ...] = ()

    @property
    def strategy(self) -> choices.Strategy:
        """The name of the strategy."""
        return "independent" if self.block is None else "levels"

    @property
    def blocks(self) -> Blocks | None:
        """The blocks of the horizon; None if no blocks are measured."""
        return None if self.block is None else Blocks(self.horizon.num_windows, self.block)

    @property
    def summary_tables(self) -> tuple[Names, ...]:
        """The attribute sets of the exact tables that a window or a block needs."""
        names = dict.fromkeys(table.names for table in self.measurements)
        return tuple(each for each in names if not any(set(each) < set(other) for other in names))

    @property
    def steps(self) -> Sequence[Step]:
        """The noise of all windows that are protected together, and of all blocks."""
        limit = self.unit.max_windows_per_unit
        limited = self.guarantee.with_limits(max_records_per_unit=self.unit.max_records_per_unit)
        domain = self.workload.domain
        of_window = table_steps(domain, self.measurements, limited)
        of_block = table_steps(domain, self.block_measurements, limited)
        return [
            *level_steps(of_window, "window", limit, self.block),
            *(level_steps(of_block, "block", limit, self.block) if of_block else ()),
        ]

    @property
    def memory_bytes(self) -> float:
        """The worker's memory for drawing a window or a block, without the exact tables."""
        measured = num_noisy_cells(self.workload.domain, self.measurements)
        return fit_resources(0, measured + self.workload.num_cells()).memory_bytes

    @property
    def window_loss(self) -> Loss:
        """The privacy loss of the tables of one window alone."""
        part = (1 - self.share) / self.unit.max_windows_per_unit
        if self.loss.epsilon is not None:
            return Loss.pure(up(self.loss.epsilon * part))
        assert self.loss.mu_squared is not None
        return Loss.gaussian(root_up(self.loss.mu_squared * part))

    @property
    def choice(self) -> Choice:
        """The choice that led to these measurements, with the resulting variances."""
        window, block = (
            predicted_variance(self.workload, measured, False) if measured else 0.0
            for measured in (self.measurements, self.block_measurements)
        )
        return Choice(
            self.measurements[0].distribution,
            self.horizon.num_windows,
            window,
            self.block,
            self.share,
            block,
        )

    def error(self, question: str, moment: choices.Moment = "now") -> float:
        """Returns the root mean squared error of sums of windows, in records per cell.

        The error is averaged over the cells of the workload, by the workload's weights, and over
        all sums of the horizon that the question asks for, as early as possible or in the ``end``.
        """
        return self.choice.error(choices.Question.parse(question, self.horizon.num_windows), moment)

    def draw(
        self, number: int, marginals: Marginals, noise: NoiseSource, horizon_id: str
    ) -> WindowTables:
        """Returns the release of one window; all windows together keep ``guarantee``.

        ``marginals``: the window's exact tables, which include ``summary_tables``; secret.
        ``horizon_id``: the id of the horizon, 32 hexadecimal digits.
        """
        checked_integer("number", number, 0, self.horizon.num_windows - 1)
        return self._draw(
            "window",
            number,
            windows=range(number, number + 1),
            measurements=self.measurements,
            marginals=marginals,
            noise=noise,
            horizon_id=horizon_id,
        )

    def draw_block(
        self, number: int, marginals: Marginals, noise: NoiseSource, horizon_id: str
    ) -> WindowTables:
        """Returns the release of one block, with independent noise on the block's tables."""
        if self.blocks is None:
            raise InputError("block", number, "must be of a plan that measures blocks")
        checked_integer("number", number, 0, len(self.blocks) - 1)
        return self._draw(
            "block",
            number,
            windows=self.blocks.windows(number),
            measurements=self.block_measurements,
            marginals=marginals,
            noise=noise,
            horizon_id=horizon_id,
        )

    def _draw(
        self,
        level: Level,
        number: int,
        windows: range,
        measurements: tuple[Measurement, ...],
        marginals: Marginals,
        noise: NoiseSource,
        horizon_id: str,
    ) -> WindowTables:
        noisy = [table.draw(marginals, noise) for table in measurements]
        start, end = self.horizon.times(windows)
        return WindowTables(
            draw_id=noise.draw_id(),
            guarantee=self.guarantee,
            horizon_id=horizon_id,
            level=level,
            number=number,
            start=start,
            end=end,
            workload=self.workload,
            tables=unbiased_tables(self.workload, measurements, noisy),
            measured=tuple(MeasuredTable(**vars(table)) for table in measurements),
            plan=self.public,
        )

    def _stated(self) -> dict[str, Any]:
        levels = {} if self.block is None else {"block": self.block, "share": float(self.share)}
        return {
            "strategy": self.strategy,
            **levels,
            **stated_promise(self.horizon, self.unit, self.guarantee),
            "window_loss": self.window_loss.to_json(),
        }


def plan_window_tables(
    workload: Workload,
    horizon: Horizon,
    unit: WindowUnit,
    epsilon: float,
    delta: float,
    *,
    distribution: choices.DistributionChoice = "auto",
    strategy: choices.StrategyChoice = "independent",
    block: int = choices.DEFAULT_BLOCK,
    share: float | None = None,
    questions: Sequence[str] | None = None,
    allow_large_delta: bool = False,
) -> WindowTablesPlan:
    """Returns the plan for measuring the tables of all windows of a horizon.

    Privacy: (epsilon, delta) for everything that any P = ``protected_windows`` consecutive windows
    reveal about one added or removed unit, if at most c = ``max_windows_per_unit`` of these windows
    contain records of the unit, at most k = ``max_records_per_unit`` records each
    (``windows.keep_windows``). If the unit is a record, the unit is in one window: then c = 1 and
    the guarantee is for the whole horizon. With ``independent`` noise, windows are disjoint parts
    of the records, so a unit moves the measurements of P windows together by at most c times as
    much as k records move those of one window in L1 norm, and sqrt(c) times as much in L2 norm.
    Laplace noise has epsilon / c per window, Gaussian noise mu / sqrt(c) with the mu of (epsilon,
    delta). ``levels`` also measures blocks of n windows when they end, with independent noise from
    a share of the budget: epsilons add up, and so do squares of mu. All c windows of a unit may be
    in one block and in one cell: see ``choices.most_squares``. If the guarantee is for P windows
    and not for the horizon, blocks are refused, because a run of P windows may begin or end inside
    a block.

    Accuracy: tables are unbiased, never clipped, with exact variances. Errors of sums of windows
    are known in closed form: see ``WindowTablesPlan.error``.

    Args:
        workload: the marginals that are released for each window, with their domain.
        horizon: the windows.
        unit: the privacy unit, and the number of windows over which the guarantee protects it.
        epsilon: the epsilon of the guarantee.
        delta: the delta of the guarantee; 0 for pure privacy.
        distribution: the noise; ``auto`` uses the distribution with the smaller error.
        strategy: ``independent``, ``levels``, or ``best`` for the better of the two strategies.
        block: the number of windows in a block; ``best`` also tries the divisors of the horizon.
        share: the share of the budget for blocks, in (0, 1); by default the best for the questions.
        questions: the questions to optimise for, with equal weights: ``one``, ``trailing:N`` or
            ``running``; by default all three, with N = 24 if there are at least 24 windows.
        allow_large_delta: see ``Guarantee``.

    Raises:
        InputError: if a number or name is out of range, if blocks are requested and the guarantee
            is not for the whole horizon, if delta is 0 for Gaussian noise, or if the workload or
            the noise is too large.

    Cost: milliseconds; with ``best`` see ``choices.ranked_choices``.

    Example:
        >>> from beam_dp.domain.files import read_domain
        >>> domain = read_domain('{"age": 10}')
        >>> week = Horizon("2026-11-23T00:00Z", "1h", 168, "30m")
        >>> people = WindowUnit("person_id", 1, 7, 168)
        >>> plan = plan_window_tables(Workload(domain, (("age",),)), week, people, 1.0, 1e-9)
        >>> plan.guarantee.privacy_unit, round(plan.error("one"), 1)
        ('person_id in any 168 consecutive windows of 1h', 9.9)
    """
    check_is("workload", workload, Workload)
    check_is("horizon", horizon, Horizon)
    check_is("unit", unit, WindowUnit)
    promise = whole_promise(horizon, unit, epsilon, delta, allow_large_delta=allow_large_delta)
    check_request(workload.domain, workload, promise, "noisy")
    check_subsets(workload)
    best, *_ = choices.ranked_choices(
        workload,
        horizon,
        unit,
        promise,
        distribution=distribution,
        strategy=strategy,
        block=block,
        share=share,
        questions=questions,
    )
    return _planned(best, workload, horizon, unit, promise)


def _planned(
    choice: Choice, workload: Workload, horizon: Horizon, unit: WindowUnit, promise: Guarantee
) -> WindowTablesPlan:
    """Returns the plan for a choice; does not use the variances of the choice."""
    limit = unit.max_windows_per_unit
    # Pairs (part of the budget, largest sum of squared numbers of a unit's windows).
    parts = [(1 - choice.share, most_squares(limit))]
    if choice.block is not None:
        parts.append((choice.share, most_squares(limit, choice.block)))
    if choice.distribution == "discrete_laplace":
        whole = choices.laplace_tables(workload, promise)
        measured = [laplace_level(whole, part) for part, _ in parts]
        budget = Budget.of(promise, "pure")
    else:
        measured = [
            gaussian_level(workload, promise, unit, part, squares) for part, squares in parts
        ]
        budget = Budget.of(promise, "gaussian")
        moved = limit * sum(num_noisy_cells(workload.domain, sets) for sets in measured)
        if moved > _MAX_GAUSSIAN_CELLS:
            condition = "noisy cells of max_windows_per_unit windows: must be at most 2^28"
            raise InputError("workload", f"{moved:,}", condition)
    check_noise(promise, [table.scale for level in measured for table in level])
    return WindowTablesPlan(
        guarantee=promise,
        loss=budget.loss,
        horizon=horizon,
        unit=unit,
        workload=workload,
        measurements=measured[0],
        block=choice.block,
        share=choice.share,
        block_measurements=measured[1] if len(measured) > 1 else (),
    )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class WindowDatabasesPlan(Plan):
    """The public parameters of one synthetic database per window of a horizon.

    ``guarantee`` and ``loss`` are for any ``protected_windows`` windows together. There are no
    blocks or sums of windows, because counts in a synthetic database are biased.
    """

    block: ClassVar[None] = None

    mechanism: str = MECHANISM
    horizon: Horizon
    unit: WindowUnit  # the privacy unit that the guarantee protects
    window: MarginalsPlan  # the plan of one window, under the guarantee of one window

    @property
    def workload(self) -> Workload:
        """The marginals that each release is optimised for."""
        return self.window.workload

    @property
    def summary_tables(self) -> tuple[Names, ...]:
        """The attribute sets of the exact tables that a window needs."""
        return self.window.summary_tables

    @property
    def steps(self) -> Sequence[Step]:
        """The noise of all windows that are protected together."""
        return level_steps(self.window.steps, "window", self.unit.max_windows_per_unit, None)

    @property
    def unit_costs(self) -> UnitCosts | None:
        """The limit on the cost of a unit's records in each window."""
        return self.window.unit_costs

    @property
    def memory_bytes(self) -> float:
        """The worker's memory for drawing a window, without the exact tables."""
        return self.window.memory_bytes

    @property
    def time_depends_on_data(self) -> bool:
        """Whether the duration of a draw must be kept secret."""
        return self.window.time_depends_on_data

    def draw(
        self, number: int, marginals: Marginals, noise: NoiseSource, horizon_id: str
    ) -> SyntheticDatabase:
        """Returns the release of one window; see ``WindowTablesPlan.draw``."""
        checked_integer("number", number, 0, self.horizon.num_windows - 1)
        release = self.window.release(marginals, noise)
        of_window = {"horizon_id": horizon_id, "number": number, **self.public}
        return dataclasses.replace(release, plan={**release.plan, "windows": of_window})

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
    """Returns the plan for releasing one synthetic database per window.

    Privacy: see ``window_mechanism_plan``; epsilon and delta are for all protected windows.

    ``workload``: the marginals that each database is optimised for, with their domain.
    ``unit``: the privacy unit, and the number of windows over which the guarantee protects it.

    Raises:
        InputError: if a number is out of range, or the mechanism refuses the workload.
    """
    check_is("mechanism", mechanism, Mechanism, methods=("plan", "release"))
    check_is("workload", workload, Workload)
    check_is("horizon", horizon, Horizon)
    check_is("unit", unit, WindowUnit)
    promise = whole_promise(horizon, unit, epsilon, delta, allow_large_delta=allow_large_delta)
    window = window_mechanism_plan(mechanism, workload, horizon, unit, promise)
    return WindowDatabasesPlan(
        guarantee=promise,
        loss=window.loss.repeated(unit.max_windows_per_unit),
        horizon=horizon,
        unit=unit,
        window=window,
    )


def window_mechanism_plan(
    mechanism: Mechanism, workload: Workload, horizon: Horizon, unit: WindowUnit, promise: Guarantee
) -> MarginalsPlan:
    """Returns the plan of a mechanism for one window, such that c windows together keep a promise.

    Privacy: a unit is in at most c of any P consecutive windows, and each window is an independent
    run of the mechanism on the window's own records. These guarantees are tried for one window:
    epsilon / c, pure or with delta / c; and, for the largest mu and rho that the promise allows,
    the guarantees of mu / sqrt(c) and of rho / c at the same delta, and the pure guarantee of rho /
    c. A guarantee is valid if c times the loss of the mechanism's plan, with its slacks, keeps the
    promise by its epsilon, its squared mu or its rho. The valid guarantee with the least noise is
    used: at the same sensitivity the variance of Laplace noise is 1 / rho, and that of Gaussian
    noise is 1 / (2 rho). Neighbours: one unit is added or removed, with at most k records per
    window. If the mechanism's plan limits the cost of a unit's records (``unit_costs``), the
    records of each window are limited in the same way.

    Reference: Dwork and Roth (2014), Theorem 3.16; Dong, Roth and Su (2022), Corollary 3.3; Bun and
    Steinke (2016), Lemma 2.3.
    """
    limit = unit.max_windows_per_unit
    valid: list[MarginalsPlan] = []
    refusals: list[InputError] = []
    for epsilon, delta in _candidates(promise, limit):
        try:
            of_window = window_promise(horizon, unit, epsilon, delta)
            plan = mechanism.plan(workload.domain, workload, of_window, "noisy")
        except InputError as error:
            refusals.append(error)
            continue
        if _keeps(plan.loss.repeated(limit), promise):
            valid.append(plan)
    if not valid:
        raise refusals[0]

    def precision(plan: MarginalsPlan) -> Fraction:
        return (plan.loss.rho or Fraction(0)) * (1 if plan.loss.kind == "pure" else 2)

    return max(valid, key=precision)


def _candidates(promise: Guarantee, num_windows: int) -> Iterator[tuple[float, float]]:
    """Yields guarantees for one window that may compose to the promise."""
    delta, share = promise.delta, Fraction(1, num_windows)
    shared = Budget.of(promise, "pure").part(share).level
    yield shared, down(Fraction(delta) * share) if delta > 0 else 0.0
    if delta > 0 and num_windows > 1:
        yield shared, 0.0
        rho = Budget.of(promise, "zcdp").part(share).level
        yield gaussian_epsilon(Budget.of(promise, "gaussian").part(share).level, delta), delta
        yield zcdp_epsilon(rho, delta), delta
        yield root_down(2 * Fraction(rho)), 0.0


def _keeps(loss: Loss, promise: Guarantee) -> bool:
    """Returns whether a loss implies a guarantee, by epsilon, by mu or by rho."""
    delta = down(Fraction(promise.delta) - loss.slack)
    if loss.epsilon is not None and loss.epsilon <= promise.epsilon and delta >= 0:
        return True
    if delta < MIN_DELTA:
        return False
    if loss.mu is not None and loss.mu <= discrete_gaussian_mu(promise.epsilon, delta):
        return True
    return loss.rho is not None and loss.rho <= zcdp_rho(promise.epsilon, delta)


WindowsPlan = WindowTablesPlan | WindowDatabasesPlan


def horizon_card(
    plan: WindowsPlan, source: Mapping[str, Any] | None = None, *, replayable: bool
) -> HorizonCard:
    """Returns the content of ``horizon.json``; ``source`` must be the same after a restart."""
    return HorizonCard(
        horizon=plan.horizon,
        unit=plan.unit,
        guarantee=plan.guarantee,
        workload=plan.workload,
        plan=plan.public,
        source=source or {},
        replayable=replayable,
    )
