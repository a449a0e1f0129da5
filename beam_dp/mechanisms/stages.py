"""The stages of a release: those that a database needs before it, and the plan of each.

A stage is one release. The number of records per unit is chosen first, then types and a domain are
found, and the last stage is the synthetic database. One guarantee covers all stages, and a ledger
pays for all before the first draw. Each stage is planned with what the stages before have released.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import cached_property

from beam_dp.domain.attributes import PaidRelease
from beam_dp.domain.discover import OpenDomain
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms.contract import check_promise
from beam_dp.mechanisms.discovery.plan import DomainPlan, paid_alone, plans_before
from beam_dp.mechanisms.discovery.records_per_unit import (
    RecordsPlan,
    noise_per_record,
    plan_records,
)
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism
from beam_dp.mechanisms.registry import ReleaseOptions, candidate_plan, plan_release
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.loss import Loss
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.queries.workload import Workload
from beam_dp.releases.domain.earlier import RECORDS_FOLDER, UnitCounts, origin_of, records_of
from beam_dp.releases.domain.release import FOLDER, TYPES_FOLDER, DomainRelease
from beam_dp.releases.earlier_stage import Discovered, PaidTogether
from beam_dp.releases.synthetic_database.strategies import MeasureAll

EarlierStage = RecordsPlan | DomainPlan
StagePlan = EarlierStage | MarginalsPlan
Earlier = tuple[DomainPlan, ...]
Request = Callable[[Domain], tuple[Workload | LinearWorkload, ReleaseOptions]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stages(PaidTogether):
    """The stages of a release that are still to be made.

    Args:
        mechanism: the mechanism of the database.
        domain: its domain, which may have attributes to discover.
        guarantee: the guarantee of all stages. Its records per unit are the most that may be
            chosen.
        request: returns the workload and the options for a domain.
        is_chosen: whether the records per unit are to be chosen.
        domain_share: the part of the budget that finds attributes; see ``plan_domain``.
        is_paid: whether a ledger pays.
        types: the release of types, if paid together.
        paid: the loss that was paid for all stages, if one has released records per unit or types.
        choice: the release that chose them.
        before: the folder of the stage before, in that of the first of these stages.
        is_alone: whether the database is paid for apart from the release of its domain.
    """

    mechanism: Mechanism
    domain: Domain | OpenDomain
    guarantee: Guarantee
    request: Request
    is_chosen: bool = False
    domain_share: float | None = None
    is_paid: bool = False
    types: Discovered | None = None
    paid: Loss | None = None
    choice: PaidRelease | None = None
    before: str | None = None
    is_alone: bool = False

    @cached_property
    def largest(self) -> Domain:
        """The domain, or the largest one that may be found."""
        return self.domain.bounded() if isinstance(self.domain, OpenDomain) else self.domain

    @property
    def first(self) -> StagePlan:
        """The plan of the first stage."""
        return self.plans[0][0] if self.plans[0] else self.plans[1]

    @property
    def last(self) -> MarginalsPlan:
        """The plan of the database, for the most that may be found; its loss is that of all."""
        return self.plans[1]

    def places(self, output: str) -> list[tuple[str, str | None]]:
        """Returns the directory of each stage, and the name of a subfolder that may exist there."""
        names = [RECORDS_FOLDER] if self.is_chosen else []
        if isinstance(self.domain, OpenDomain):
            names += [TYPES_FOLDER, FOLDER] if self.domain.lacks_types else [FOLDER]
        directories = [output]
        for name in reversed(names):
            directories.insert(0, f"{directories[0].rstrip('/')}/{name}")
        return list(zip(directories, [self.before, *names], strict=True))

    @cached_property
    def plans(self) -> tuple[tuple[EarlierStage, ...], MarginalsPlan]:
        """The plans of the earlier stages and of the database, for the most that may be found."""
        if self.is_chosen:
            return self._plans_with_choice()
        workload, options = self.request(self.largest)
        options = dataclasses.replace(options, paid=self.paid, **self.earlier)
        earlier: tuple[DomainPlan, ...] = ()
        if isinstance(self.domain, OpenDomain):
            firsts, plan = self._plans_with_domain(self.domain, workload, options)
            paid, choice = (plan.promised, plan.loss), self.choice
            earlier = tuple(
                dataclasses.replace(first, paid=paid, records_per_unit_from=choice)
                for first in firsts
            )
        else:
            plan = plan_release(self.mechanism, self.domain, workload, self.guarantee, options)
            plan = paid_alone(plan) if self.is_alone else plan
        # A plan names the choice of its records per unit if this was paid apart.
        choice = self.choice if plan.records_per_unit is None else None
        return earlier, dataclasses.replace(plan, records_per_unit_from=choice)

    def _plans_with_domain(
        self, domain: OpenDomain, workload: Workload | LinearWorkload, options: ReleaseOptions
    ) -> tuple[Earlier, MarginalsPlan]:
        """Plans the release of a domain, and the database for the largest domain.

        With delta > 0, the database gets a Gaussian or a pure guarantee, whichever its mechanism
        can use. If it can use both: the one with the smaller predicted error, but Gaussian if a
        ledger pays, where only losses of one kind leave room for more releases. (The choice of the
        records per unit is purely private, so there one kind is out of reach.)
        """
        refusals, chosen = list[InputError](), self.records_per_unit
        candidates: list[tuple[Earlier, tuple[MarginalsPlan, Guarantee], MarginalsPlan]] = []
        guarantee = self.guarantee if chosen is None else chosen.main
        for is_pure in (False, True) if guarantee.delta > 0 else (True,):
            firsts = plans_before(domain, guarantee, self.domain_share, is_pure, self.types)
            with_domain = dataclasses.replace(options, discovered=firsts[-1].shared)
            try:
                plans = candidate_plan(
                    self.mechanism, self.largest, workload, self.guarantee, with_domain
                )
            except InputError as error:
                refusals.append(error)
            else:
                candidates.append((firsts, *plans))
                if self.is_paid and chosen is None:
                    break
        if not candidates:
            raise refusals[0]

        def predicted_error(plan: MarginalsPlan) -> float:
            parameters = plan.parameters
            # The errors of rounds are not predicted.
            return (
                parameters.predicted_cell_error if isinstance(parameters, MeasureAll) else math.inf
            )

        firsts, alone, last = min(candidates, key=lambda plans: predicted_error(plans[2]))
        check_promise(*alone)
        return firsts, last

    def _plans_with_choice(self) -> tuple[tuple[EarlierStage, ...], MarginalsPlan]:
        """Plans the choice of the records per unit from the noise of the largest database."""
        one = self.guarantee.with_limits(max_records_per_unit=1)
        declared = self.domain.declared if isinstance(self.domain, OpenDomain) else self.domain
        first = plan_records(declared, self.guarantee, noise_per_record=1.0)
        largest = first.chosen(first.max_records)
        rest = dataclasses.replace(self, is_chosen=False, records_per_unit=largest)
        plan = rest.last
        place = "where the records per unit are chosen"
        if plan.total_is_public:
            condition = f"must be noisy {place}: how many are used follows from private counts"
            raise InputError("num_records", plan.num_records, condition)
        if plan.unit_costs is not None:
            max_unit_cost = getattr(self.mechanism, "max_unit_cost", None)
            raise InputError("max_unit_cost", max_unit_cost, f"must be left out {place}")
        if self.mechanism.answers_linear_queries:
            condition = f"must be one that measures tables {place}"
            raise InputError("mechanism", self.mechanism.name, condition)
        if isinstance(self.domain, OpenDomain):
            is_pure = plan.guarantee.delta == 0
            one = plans_before(self.domain, one, self.domain_share, is_pure)[-1].main
        noise, paid = noise_per_record(plan, one), (plan.promised, plan.loss)
        return (dataclasses.replace(first, noise_per_record=noise, paid=paid), *rest.plans[0]), plan

    def after(self, release: DomainRelease | UnitCounts, *, is_paid_again: bool = False) -> Stages:
        """Returns the stages after the first one, from what this has released.

        ``is_paid_again``: whether the first payment is used up; then the other stages pay again.
        """
        chosen = self.records_per_unit
        if isinstance(release, DomainRelease) and release.readings:
            typed = dataclasses.replace(
                self, domain=release.result, types=release.discovered, before=TYPES_FOLDER
            )
            if is_paid_again and chosen is not None:  # types are paid again, but not the choice
                typed = dataclasses.replace(typed, guarantee=chosen.main, records_per_unit=None)
            return dataclasses.replace(typed, paid=None if is_paid_again else self.last.loss)
        if isinstance(release, DomainRelease):
            return dataclasses.replace(
                self,
                domain=release.domain,
                discovered=release.discovered,
                before=FOLDER,
                is_alone=is_paid_again,
            )
        chosen = records_of(release)
        rest = dataclasses.replace(
            self, is_chosen=False, choice=origin_of(release), before=RECORDS_FOLDER
        )
        if is_paid_again:
            return dataclasses.replace(rest, guarantee=chosen.main)
        return dataclasses.replace(rest, records_per_unit=chosen, paid=self.last.loss)
