"""Combines synthetic databases of the same records; this module never reads exact data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from beam_dp.errors import InputError
from beam_dp.mechanisms.checks import Progress
from beam_dp.mechanisms.marginals import plan as plans
from beam_dp.mechanisms.marginals.synthesis import synthesise
from beam_dp.models.basis import Support, on_one_thread
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.loss import composed
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database import promises
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.summaries.histogram import Marginals
from beam_dp.verification.steps import total
from beam_dp.verification.verdict import Figures

_Draws = Sequence[Mapping[str, Any]]


def combine_releases(first: SyntheticDatabase, second: SyntheticDatabase) -> SyntheticDatabase:
    """Returns one release that answers from the noisy tables of two releases of the same records.

    Tables that both measured are averaged by inverse variance, all others are kept, and a new
    distribution and new records are fitted to all tables.

    Privacy: post-processing, which spends nothing. The card states the composition of both
    promises: the delta is the sum of both deltas, and the epsilon follows from all noise together.

    Accuracy: the noise of two draws is independent. So if both releases measured tables that were
    fixed before either was seen, the combined tables are unbiased and their errors are exact. If
    noise chose the tables of a release, the errors are approximate, and the bounds hold for any
    choice (``NoiseBounds``, one measurement after the other).

    Nothing in a release shows which records it was made from: the caller vouches that both were
    made from the same ones.

    Args:
        first: a release that keeps noisy tables, of one draw or combined.
        second: another such release, of the same domain, relation, unit and limits on the records
            of a unit; the number of records must be noisy in both, or the same public number.

    Raises:
        InputError: if a release can't be combined with the other; the error names ``first`` or
            ``second``.

    Cost: that of the fit to the tables of both.

    Example:
        >>> both = combine_releases(monday, tuesday)  # doctest: +SKIP
    """
    draws: list[Mapping[str, Any]] = []
    for name, release in (("first", first), ("second", second)):
        _check_one(name, release)
        draws += promises.stated_draws(release)
    _check_both(first, second)
    return _plan(first, second, draws).release(Marginals(first.domain, {}), NoiseSource())


@dataclasses.dataclass(frozen=True, kw_only=True)
class CombinedPlan(plans.MarginalsPlan):
    """The plan of a release that measures nothing: its noisy tables are those of releases."""

    strategy: ClassVar[str] = promises.COMBINED

    mechanism: str = promises.COMBINED
    releases: tuple[SyntheticDatabase, ...]
    draws: _Draws

    @property
    def is_fixed(self) -> bool:
        """See ``MarginalsPlan``."""
        return all(each.measurements and each.measurements.are_fixed for each in self.releases)

    def _stated(self) -> dict[str, Any]:
        return promises.combined_parameters(self.draws)

    @on_one_thread
    def release(
        self, marginals: Marginals, noise: NoiseSource, progress: Progress | None = None
    ) -> SyntheticDatabase:
        """Returns the release that fits the noisy tables; reads no exact table."""
        held = [each.measurements for each in self.releases if each.measurements is not None]
        scored = [each.distances for each in held if each.distances is not None]
        found = synthesise(
            self,
            [described for each in held for described in each.described],
            [table for each in held for table in each.tables],
            noise,
            progress,
            joined=_joined(self.workload, self.releases),
            num_bounded_cells=None
            if self.is_fixed
            else lambda _: promises.num_choosable_cells(self.workload),
            # Scores of different releases are distances from different tables.
            distances=min(scored, key=lambda each: each.deviation, default=None),
            num_releases=len(self.draws),
        )
        return dataclasses.replace(
            found, within_bins=self.within_bins, records_format=self.records_format
        )


def _plan(first: SyntheticDatabase, second: SyntheticDatabase, draws: _Draws) -> CombinedPlan:
    """Returns the plan with the composed guarantee and the marginals of both workloads."""
    weights: dict[tuple[str, ...], float] = {}
    for each in (first, second):
        for names, weight in zip(each.workload.marginals, each.workload.weights, strict=True):
            weights[names] = max(weight, weights.get(names, 0.0))
    delta = first.guarantee.delta + second.guarantee.delta
    promise = dataclasses.replace(first.limited_guarantee, delta=delta, allow_large_delta=True)
    found = promises.combined_promises(draws, first.workload, [*first.noise, *second.noise])
    steps, beside = promises.combined_steps(found, promise, Figures())
    _, epsilon = total(steps, promise, beside)
    return CombinedPlan(
        workload=Workload(first.domain, tuple(weights), tuple(weights.values())),
        guarantee=dataclasses.replace(promise, epsilon=epsilon, allow_large_delta=True),
        num_records="noisy" if first.public_number is None else first.public_number,
        summary_tables=(),
        measurements=(),
        loss=composed(step.loss for step in [*steps, *beside]),
        within_bins=first.within_bins,
        records_format=first.records_format,
        num_synthetic_records=None if first.num_represented is None else first.num_records,
        releases=(first, second),
        draws=tuple(draws),
    )


def _joined(workload: Workload, releases: Sequence[SyntheticDatabase]) -> list[Support] | None:
    """Returns the sets that a tree joins, those of both releases first; None if it joins all."""
    own = [{names for names, _ in each.potentials} for each in releases]
    loose = [names for each in releases for names in each.record_tables if names]
    ordered = [*sorted(set.intersection(*own)), *sorted(set.union(*own)), *loose]
    return plans.joined_sets(workload, ordered)


def _check_one(name: str, release: object) -> None:
    """Refuses a release without noisy tables, or whose noise is not known."""
    if not isinstance(release, SyntheticDatabase):
        kind = type(release).__name__
        raise InputError(name, kind, "must be a synthetic database, which has noisy tables")
    if release.measurements is None:
        condition = "must have noisy tables: small_db and textbook mwem keep none"
        raise InputError(name, release.mechanism, condition)
    strategy = release.plan.get("strategy")
    if strategy not in (*promises.OF_TABLES, promises.COMBINED):
        condition = f"must be one of {', '.join((*promises.OF_TABLES, promises.COMBINED))}"
        raise InputError(name, f"strategy {strategy}", condition)
    if "windows" in release.plan:
        condition = "must not be: other windows have other records"
        raise InputError(name, "the release of a window", condition)


def _check_both(first: SyntheticDatabase, second: SyntheticDatabase) -> None:
    """Refuses two releases that share a draw, or that protect or count different things."""
    condition = "must be of the first release's domain"
    first.domain.check_same(second.domain, "second", ", ".join(second.domain.names), condition)
    one, other = _Facts.of(first), _Facts.of(second)
    if shared := one.ids & other.ids:
        condition = "must be another draw: its noise is in both releases already"
        raise InputError("second", min(shared), condition)
    for name, facts, others in (("first", one, other), ("second", other, one)):
        if started := facts.started & others.ids:
            condition = "must not be what this release was started from: it followed that noise"
            raise InputError(name, min(started), condition)
    for name, value in one.protected.items():
        if other.protected[name] != value:
            condition = f"must be the same in both releases; it is {value} in the first"
            raise InputError("second", f"{name} {other.protected[name]}", condition)


@dataclasses.dataclass(frozen=True)
class _Facts:
    """The public facts about a release that decide whether it can be combined."""

    ids: set[str]
    started: set[str]
    protected: Mapping[str, Any]

    @classmethod
    def of(cls, release: SyntheticDatabase) -> _Facts:
        draws = promises.promises_of(release)
        parameters = [each.stated.parameters for each in draws]
        limited, number = release.limited_guarantee, release.public_number
        return cls(
            {release.draw_id, *(each.draw_id for each in draws)},
            {str(each["start_from"]) for each in parameters if "start_from" in each},
            {
                **{name: getattr(limited, name) for name in promises.SHARED},
                "max_unit_cost": parameters[0].get("max_unit_cost"),
                "num_records": "noisy" if number is None else number,
            },
        )
