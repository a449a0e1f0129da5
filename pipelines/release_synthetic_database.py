"""Release a synthetic database that answers a workload, with differential privacy.

    beam-dp release-synthetic-database \
        --input 'visits/*.parquet' --domain visits.json --workload marginals:3 \
        --epsilon 1 --delta 1e-9 --neighboring add_or_remove_one \
        --privacy_unit person_id --max_records_per_unit 1 --num_records noisy --output out/visits

A bad argument is reported in one line, with exit code 2, before any worker starts.
`beam-dp release-synthetic-database --help` lists the flags.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

import apache_beam as beam

from beam_dp.errors import magnitude
from beam_dp.flags import shared
from beam_dp.flags.flag import Flag, FlagError, check_applies, flags_of, integer, values_of
from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism
from beam_dp.mechanisms.marginals.textbook_mwem import TextbookPlan
from beam_dp.mechanisms.registry import SYNTHETIC, ReleaseOptions, options_of, plan_release
from beam_dp.mechanisms.small_db.small_db import SmallDB, SmallDBPlan
from beam_dp.noise.bound import FAILURE_PROBABILITY
from beam_dp.privacy.ledger.entries import Token
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.workload import Workload, parse_workload
from beam_dp.reports.terminal import counted
from beam_dp.transforms.drawing.release import ReleasePlanned

from . import program
from .flags import START_RECORDS, read_domain, start_records

MECHANISM = Flag(
    "mechanism",
    "; ".join(f"{name} {each.summary}" for name, each in SYNTHETIC.items()),
    default=MWEM.name,
    choices=tuple(SYNTHETIC),
)
FLAGS = (
    *shared.COMMON,
    shared.COUNT_LEFT_OUT,
    shared.EXPECT_RECORDS,
    shared.WITHIN_BINS,
    shared.RECORDS_FORMAT,
    shared.NUM_SYNTHETIC_RECORDS,
    MECHANISM,
    START_RECORDS,
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

    def facts(self) -> dict[str, str]:
        """Returns the lines of the preview."""
        error = program.marginals_error(self.plan)
        of_queries = {}
        if isinstance(self.plan, SmallDBPlan):
            if self.plan.vc_dimension is not None:
                of_queries["vc dimension"] = str(self.plan.vc_dimension)
            error = "depends on the number of records: the card will state it"
            if self.plan.bound is not None:
                error = program.bound_text(self.plan.bound, self.plan.failure_probability)
        if isinstance(self.plan, TextbookPlan) and self.plan.stop is not None:
            told = program.bound_text(self.plan.stop.bound, FAILURE_PROBABILITY)
            error = f"depends on the data; if the rounds end early, {told}"
        workload = self.plan.workload
        return {
            "records": program.number_text(self.plan.num_records),
            "tables": f"{counted(len(workload), 'marginal')}, {workload.num_cells():,} cells",
            **of_queries,
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


def _read_job(given: dict[str, str], fields: dict[str, Any]) -> Job:
    """Returns the job that the flags describe."""
    domain = read_domain(given)
    takes_linear = SYNTHETIC[given["mechanism"]].answers_linear_queries
    read_workload = parse_linear_workload if takes_linear else parse_workload
    workload: Workload | LinearWorkload = read_workload(given["workload"], domain)
    mechanism = _mechanism(given)
    rows = given.get("num_synthetic_records")
    options = ReleaseOptions(
        num_records=shared.read_num_records(given),
        count_left_out="count_left_out" in given,
        within_bins=given["within_bins"],  # type: ignore[arg-type]  # one of its choices
        records_format=given["records_format"],  # type: ignore[arg-type]  # as above
        num_synthetic_records=None if rows is None else integer("num_synthetic_records", rows),
        start_from=start_records(given, domain),
        queries=given["workload"],
    )
    expected = program.read_expected(given, options.num_records)
    plan = plan_release(mechanism, domain, workload, shared.read_guarantee(given), options)
    return Job(**fields, workload=workload, mechanism=mechanism, plan=plan, expect_records=expected)


def _mechanism(given: dict[str, str]) -> Mechanism:
    name = given["mechanism"]
    check_applies(given, name, options_of(SYNTHETIC))
    if name == SmallDB.name and not {"size", "max_error_fraction"} & given.keys():
        raise FlagError("--size is required with --mechanism small_db, or --max_error_fraction")
    return SYNTHETIC[name](**values_of(SYNTHETIC[name], given))


PROGRAM = program.Program("release_synthetic_database", FLAGS, __doc__, _read_job)
parse_arguments, main = PROGRAM.parse_arguments, PROGRAM.main

if __name__ == "__main__":
    raise SystemExit(main())
