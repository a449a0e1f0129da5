"""Release a synthetic database that answers a workload, with differential privacy.

    beam-dp release-synthetic-database \
        --input 'visits/*.parquet' --domain visits.json --workload marginals:3 \
        --epsilon 1 --delta 1e-9 --neighboring add_or_remove_one \
        --privacy_unit person_id --max_records_per_unit 1 --num_records noisy --output out/visits

A bad argument is reported in one line, with exit code 2, before any worker starts.
`beam-dp release-synthetic-database --help` lists the flags.
"""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam

from beam_dp.domain.attributes import PaidRelease
from beam_dp.domain.discover import OpenDomain
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError, magnitude
from beam_dp.flags import shared
from beam_dp.flags.flag import Flag, FlagError, check_applies, flags_of, integer, values_of
from beam_dp.mechanisms.discovery.plan import paid_alone
from beam_dp.mechanisms.discovery.records_per_unit import (
    noise_per_record,
    plan_records,
)
from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism
from beam_dp.mechanisms.registry import (
    SYNTHETIC,
    ReleaseOptions,
    options_of,
    plan_discovery,
    plan_release,
)
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger.entries import Entry, Token
from beam_dp.privacy.loss import Loss
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.workload import Workload, parse_workload
from beam_dp.releases.discovered import Discovered
from beam_dp.releases.domain.earlier import RECORDS_FOLDER, origin_of
from beam_dp.releases.domain.release import FOLDER, DomainRelease
from beam_dp.releases.domain.unit_counts import UnitCounts, records_of
from beam_dp.releases.files.commit import holds_card
from beam_dp.releases.kinds import read_release
from beam_dp.releases.release import Release
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.synthetic_database.strategies import SmallDatabase, Textbook
from beam_dp.transforms.drawing.release import ReleasePlanned
from beam_dp.views.cells import column_warnings
from beam_dp.views.terminal import counted

from . import program
from .flags import START_RECORDS, read_open_domain, start_records
from .progress import Progress
from .runners import make_pipeline
from .running import is_launched
from .stages import (
    DOMAIN_SHARE,
    LIMIT,
    MOST,
    ChoosingJob,
    DomainJob,
    FirstJob,
    RecordsJob,
    domain_folder,
    is_to_choose,
    read_share,
    records_folder,
    refuse_share,
)

MECHANISM = Flag(
    "mechanism",
    "; ".join(f"{name} {each.summary}" for name, each in SYNTHETIC.items()),
    default=MWEM.name,
    choices=tuple(SYNTHETIC),
)
FLAGS = (
    *(LIMIT if flag is shared.MAX_RECORDS_PER_UNIT else flag for flag in shared.COMMON),
    MOST,
    shared.COUNT_LEFT_OUT,
    shared.EXPECT_RECORDS,
    shared.WITHIN_BINS,
    shared.RECORDS_FORMAT,
    shared.NUM_SYNTHETIC_RECORDS,
    MECHANISM,
    START_RECORDS,
    DOMAIN_SHARE,
    *(flag for flag in flags_of(*SYNTHETIC.values()) if flag not in shared.COMMON),
)


@dataclass(frozen=True, kw_only=True)
class Job(program.ReleaseJob):
    """A job that releases a synthetic database."""

    workload: Workload | LinearWorkload
    mechanism: Mechanism
    plan: MarginalsPlan

    def release(self, token: Token | None) -> beam.PTransform:
        """Returns the transform that creates the release."""
        return ReleasePlanned(self.mechanism, self.plan, token)

    def tell(self, release: Release) -> None:
        """Prints warnings about columns; then as ``ReleaseJob``."""
        assert isinstance(release, SyntheticDatabase)
        for warning in column_warnings(release.not_described):
            print(f"warning: {warning}", file=sys.stderr)
        super().tell(release)

    def facts(self) -> dict[str, str]:
        """Returns the lines of the preview."""
        error = program.marginals_error(self.plan)
        parameters = self.plan.parameters
        if isinstance(parameters, SmallDatabase):
            error = "depends on the number of records: the card will state it"
            if parameters.bound is not None:
                error = program.bound_text(parameters.bound, parameters.failure_probability)
        if isinstance(parameters, Textbook) and parameters.stop_below:
            probability = parameters.failure_probability
            text = program.bound_text(parameters.bound_when_stopped, probability)
            error = f"depends on the data; if the rounds end early, {text}"
        workload = self.plan.workload
        records, noise = program.number_text(self.plan.num_records), self.plan.num_rows_from_noise
        size = f"up to {self.plan.disk_bytes / 1e6:,.1f} MB"
        disk = f"{size} of released records"
        if noise:
            records = f"{records}; released, up to {noise:,.0f} more or fewer than there are"
            disk = f"what the records take, and {size} more"
        return {
            "records": records,
            "disk": disk,
            "tables": f"{counted(len(workload), 'marginal')}, {workload.num_cells():,} cells",
            **self.plan.facts,
            "error": error,
        }

    def headline(self) -> str:
        """Returns a short description of the job."""
        is_marginals = isinstance(self.workload, Workload)
        what = ("marginal",) if is_marginals else ("linear query", "linear queries")
        return (
            f"release of {counted(len(self.plan.domain.names), 'attribute')},"
            f" {magnitude(self.plan.domain.num_cells)} cells, {counted(len(self.workload), *what)}"
        )

    def warnings(self) -> list[str]:
        """Returns a warning if the running time depends on the records."""
        if not self.plan.time_depends_on_data:
            return []
        return [
            "--sampler search: the running time depends on the records; use it only if no one"
            " else sees the time"
        ]

    def advice(self) -> tuple[str, str]:
        """Returns a remark about the release, and example flags of ``beam-dp answer``."""
        names = shlex.quote(",".join(self.plan.workload.marginals[0]))
        return "Look at it", f"--marginal {names}"


@dataclass(frozen=True, kw_only=True)
class LaterJob(Job):
    """A job whose domain or records per unit were released into a folder of its output.

    ``entry``: the ledger's entry that paid for all releases; None without a ledger, or if this
    release is paid for again. ``told``: more warnings.
    """

    first: FirstJob
    entry: Entry | None = None
    told: Sequence[str] = ()
    beside: str | None = FOLDER

    def headline(self) -> str:
        """Returns a short description of the job."""
        return f"{super().headline()}, with the {self.first.what} of {self.first.output}"

    def warnings(self) -> list[str]:
        """Returns the warnings to print before anything is paid."""
        return [*super().warnings(), *self.told]

    def token(self) -> Token | None:
        """Returns the entry, or a token for the future payment; None without a ledger."""
        return super().token() if self.entry is None else self.entry

    def submit(self, pipeline: beam.Pipeline, progress: Progress) -> bool:
        """Marks the entry, so that no later run uses it; then runs the pipeline."""
        if self.entry is not None:
            self.first.mark(self.entry)
        return super().submit(pipeline, progress)


@dataclass(frozen=True, kw_only=True)
class OpenJob(LaterJob):
    """A job of two runs, for a domain with attributes to discover.

    ``plan``: for the largest domain that may be found; its loss is that of both releases.
    ``later``: makes the plan of the second run from a domain and what the guarantee also covers.
    """

    first: DomainJob
    later: Callable[[Domain, Discovered | None], MarginalsPlan]

    def add(
        self, records: beam.PCollection[Any], token: Token | None = None
    ) -> beam.PCollection[str]:
        """Adds both runs, to check that they can be built."""
        self.first.add(records)
        return super().add(records)

    def card(self) -> dict[str, Any]:
        """Returns the part of the card that is known before any record is read."""
        return super().card() | {"domain": self.first.plan.domain.to_json()}

    def headline(self) -> str:
        """Returns a short description of the job."""
        return f"{self.first.headline()}, then at most a {Job.headline(self)}"

    def facts(self) -> dict[str, str]:
        """Returns the lines of the preview."""
        return {**self.first.facts(), **super().facts()}

    def run(self, progress: Progress) -> int:
        """Releases the domain, unless an earlier run of this command did, and then the records."""
        pipeline = make_pipeline(self.beam_flags, self.output)
        if is_launched(pipeline):
            condition = "must not have attributes to discover: the launcher starts only one job"
            raise InputError("domain", self.first.plan.domain.open[0].name, condition)
        found = self.first.committed()
        if found is None:
            program.build(self, pipeline)
            self.probe()
            exit_code = self.first.run(progress)
            if exit_code:
                return exit_code
            found = read_release(self.first.output, kind=DomainRelease)
        return self.second(found).run(progress)

    def second(self, found: DomainRelease) -> LaterJob:
        """Returns the job of the second run, which a marked entry does not pay for."""
        entry, split = self.first.entry_of(found), found.discovered
        plan, told = self.later(found.domain, split), []
        if entry is not None and self.first.is_marked(entry):
            told = [f"{entry.release_id} paid for a run that was submitted: this run is paid again"]
            chosen = self.first.plan.records_per_unit_from
            plan = dataclasses.replace(paid_alone(plan), records_per_unit_from=chosen)
            entry = None
        fields = {each.name: getattr(self, each.name) for each in dataclasses.fields(LaterJob)}
        workload = plan.workload if isinstance(self.workload, Workload) else self.workload
        told = [*self.told, *told]
        changed = {"plan": plan, "entry": entry, "workload": workload, "told": told}
        return LaterJob(**{**fields, **changed})


def _read_job(given: dict[str, str], fields: dict[str, Any]) -> program.Job:
    """Returns the job that the flags describe."""
    fields["expect_records"] = program.read_expected(given, shared.read_num_records(given))
    if not is_to_choose(given):
        return _job(given, fields, shared.read_guarantee(given))
    return _choosing_job(given, fields)


@dataclass(frozen=True)
class _Chosen:
    """What is known of the choice of the records per unit when a later job is made.

    ``entry, told``: as in ``LaterJob``. ``paid``: the loss that the entry paid for. ``origin``: the
    draw that chose, and the entry that paid for it.
    """

    first: RecordsJob | None = None
    records: Discovered | None = None
    paid: Loss | None = None
    entry: Entry | None = None
    told: Sequence[str] = ()
    origin: PaidRelease | None = None


def _job(
    given: dict[str, str],
    fields: dict[str, Any],
    guarantee: Guarantee,
    chosen: _Chosen = _Chosen(),
) -> Job:
    """Returns the job for a guarantee, with the records per unit that were chosen, if any."""
    domain, mechanism = read_open_domain(given), _mechanism(given)
    takes_linear = SYNTHETIC[given["mechanism"]].answers_linear_queries
    read_workload = parse_linear_workload if takes_linear else parse_workload
    rows = given.get("num_synthetic_records")

    apart = chosen.origin if chosen.records is None else None

    def workload_of(domain: Domain) -> Workload | LinearWorkload:
        return read_workload(given["workload"], domain)

    def options(domain: Domain, discovered: Discovered | None = None) -> ReleaseOptions:
        return ReleaseOptions(
            num_records=shared.read_num_records(given),
            count_left_out="count_left_out" in given,
            within_bins=given["within_bins"],  # type: ignore[arg-type]  # one of its choices
            records_format=given["records_format"],  # type: ignore[arg-type]  # as above
            num_synthetic_records=None if rows is None else integer("num_synthetic_records", rows),
            start_from=start_records(given, domain),
            queries=given["workload"],
            discovered=discovered,
            records_per_unit=chosen.records,
            paid=chosen.paid,
        )

    def plan_of(domain: Domain, discovered: Discovered | None = None) -> MarginalsPlan:
        asked = workload_of(domain), guarantee, options(domain, discovered)
        plan = plan_release(mechanism, domain, *asked)
        return dataclasses.replace(plan, records_per_unit_from=apart)

    later: dict[str, Any] = {"entry": chosen.entry, "told": chosen.told}
    if not isinstance(domain, OpenDomain):
        refuse_share(given)
        plan, workload = plan_of(domain), workload_of(domain)
        made = {**fields, "workload": workload, "mechanism": mechanism, "plan": plan}
        if chosen.first is None:
            return Job(**made)
        return LaterJob(**made, **later, first=chosen.first, beside=RECORDS_FOLDER)
    largest = domain.bounded()
    asked = workload_of(largest), guarantee, options(largest)
    is_paid = fields["ledger"] is not None
    share, flags = read_share(given)
    domain_plan, plan = plan_discovery(mechanism, domain, *asked, share, is_paid=is_paid)
    plan = dataclasses.replace(plan, records_per_unit_from=apart)
    domain_plan = dataclasses.replace(domain_plan, records_per_unit_from=chosen.origin)
    if chosen.records is not None:
        domain_plan = dataclasses.replace(domain_plan, paid=(plan.promised, plan.loss))
    shared_fields = {name: value for name, value in fields.items() if name != "expect_records"}
    shared_fields["output"] = domain_folder(fields["output"])
    shared_fields |= {"last_output": fields["output"], "flags": flags}
    return OpenJob(
        **fields,
        workload=asked[0],
        mechanism=mechanism,
        plan=plan,
        first=DomainJob(**shared_fields, **later, plan=domain_plan, later=plan),
        later=plan_of,
    )


def _choosing_job(given: dict[str, str], fields: dict[str, Any]) -> ChoosingJob:
    """Returns the job that chooses the records per unit first."""
    whole = shared.read_guarantee(given)
    one = whole.with_limits(max_records_per_unit=1)
    noise = noise_per_record(_job(given, fields, one).plan)
    domain, (_, flags) = read_open_domain(given), read_share(given)
    is_open = isinstance(domain, OpenDomain)
    declared = domain.declared if isinstance(domain, OpenDomain) else domain
    plan = plan_records(declared, whole, noise)
    largest = _job(given, fields, whole, _Chosen(records=plan.chosen(plan.most)))
    plan = dataclasses.replace(plan, paid=largest.plan.loss)
    shared_fields = {name: value for name, value in fields.items() if name != "expect_records"}
    output = domain_folder(fields["output"]) if is_open else fields["output"]
    shared_fields["output"] = records_folder(output)
    shared_fields |= {"last_output": fields["output"], "flags": flags}
    first = RecordsJob(
        **shared_fields,
        plan=plan.counts,
        later=largest.plan,
        records=plan,
        is_named=not is_open,
    )

    def then(found: UnitCounts) -> Job:
        entry, records, origin = first.entry_of(found), records_of(found), origin_of(found)
        if entry is None or not first.is_marked(entry) or _paid_by(output, entry):
            known = _Chosen(first, records, plan.paid, entry, origin=origin)
            return _job(given, fields, whole, known)
        told = f"{entry.release_id} paid for a run that was submitted: the rest is paid again"
        return _job(given, fields, records.main, _Chosen(first, told=[told], origin=origin))

    return ChoosingJob(
        **{name: value for name, value in fields.items() if name != "expect_records"},
        plan=largest.plan,
        first=first,
        largest=largest,
        then=then,
    )


def _paid_by(output: str, entry: Entry) -> bool:
    """Returns whether a directory has a domain that an entry paid for."""
    if not holds_card(output):
        return False
    found = read_release(output)
    return isinstance(found, DomainRelease) and found.plan.get("ledger_release") == entry.release_id


def _mechanism(given: dict[str, str]) -> Mechanism:
    name = given["mechanism"]
    check_applies(given, name, options_of(SYNTHETIC))
    if name == SmallDatabase.strategy and not {"size", "max_error_fraction"} & given.keys():
        raise FlagError("--size is required with --mechanism small_db, or --max_error_fraction")
    return SYNTHETIC[name](**values_of(SYNTHETIC[name], given))


PROGRAM = program.Program("release_synthetic_database", FLAGS, __doc__, _read_job)
parse_arguments, main = PROGRAM.parse_arguments, PROGRAM.main

if __name__ == "__main__":
    raise SystemExit(main())
