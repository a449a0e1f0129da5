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
import sys
from dataclasses import dataclass
from typing import Any

from beam_dp.domain.discover import OpenDomain
from beam_dp.domain.universe import Domain
from beam_dp.errors import magnitude
from beam_dp.flags import shared
from beam_dp.flags.flag import Flag, check_mechanism, flags_of, integer, values_of
from beam_dp.flags.shared import DISCOVER
from beam_dp.mechanisms.bin_sums import SUMS_SHARE
from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism
from beam_dp.mechanisms.registry import SYNTHETIC, ReleaseOptions, options_of
from beam_dp.mechanisms.stages import Stages
from beam_dp.privacy.ledger.entries import Token
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.workload import Workload, parse_workload
from beam_dp.releases.release import Release
from beam_dp.releases.synthetic_database.bin_sums import placed_columns
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.synthetic_database.strategies import SmallDatabase, Textbook
from beam_dp.views.cells import column_warnings
from beam_dp.views.terminal import counted

from . import program
from .flags import START_RECORDS, read_open_domain, start_records
from .stages import DOMAIN_SHARE, LIMIT, MOST, read_share, staged

MECHANISM = Flag(
    "mechanism",
    "; ".join(f"{name} {mechanism.summary}" for name, mechanism in SYNTHETIC.items()),
    default=MWEM.name,
    choices=tuple(SYNTHETIC),
)
FLAGS = (
    *(LIMIT if flag is shared.MAX_RECORDS_PER_UNIT else flag for flag in shared.COMMON),
    MOST,
    shared.COUNT_LEFT_OUT,
    shared.EXPECT_RECORDS,
    shared.WITHOUT_BIN_SUMS,
    shared.WITHIN_BINS,
    shared.RECORDS_FORMAT,
    shared.NUM_SYNTHETIC_RECORDS,
    MECHANISM,
    START_RECORDS,
    DOMAIN_SHARE,
    *(flag for flag in flags_of(*SYNTHETIC.values()) if flag not in shared.COMMON),
)
OPTIONS = options_of(SYNTHETIC)
NEEDED = {SmallDatabase.strategy: [("size", "max_error_fraction")]}


@dataclass(frozen=True, kw_only=True)
class Job(program.ReleaseJob):
    """A job that releases a synthetic database."""

    plan: MarginalsPlan

    def release(self, token: Token | None) -> program.Transform:
        """Returns the transform that creates the release."""
        from beam_dp.transforms.drawing.release import ReleasePlanned

        return ReleasePlanned(self.plan, token)

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
            **self._of_means(),
            "error": error,
        }

    def _of_means(self) -> dict[str, str]:
        """Returns the line of the preview about means, if bins of numbers move them."""
        if not placed_columns(self.plan.domain):
            return {}
        if self.plan.bin_sums is not None:
            return {"means": f"measured in each bin, for {100 * SUMS_SHARE:g} % of the budget"}
        why = "" if self.plan.unit_costs is None else ": --max_unit_cost does not limit their sums"
        return {"means": f"the middles of bins{why}"}

    def headline(self) -> str:
        """Returns a short description of the job."""
        plan = self.plan
        num_queries = plan.asked.get("num_queries")
        asked = counted(len(plan.workload), "marginal")
        if num_queries is not None:
            asked = counted(num_queries, "linear query", "linear queries")
        return (
            f"release of {counted(len(plan.domain.names), 'attribute')},"
            f" {magnitude(plan.domain.num_cells)} cells, {asked}"
        )

    def warnings(self) -> list[str]:
        """Returns a warning if the running time depends on the records."""
        if not self.plan.time_depends_on_data:
            return super().warnings()
        return [
            *super().warnings(),
            "--sampler search: the running time depends on the records; use it only if no one"
            " else sees the time",
        ]

    def advice(self) -> tuple[str, str]:
        """Returns a remark about the release, and example flags of ``beam-dp answer``."""
        names = shlex.quote(",".join(self.plan.workload.marginals[0]))
        return "Look at it", f"--marginal {names}"


def _read_job(given: dict[str, str], fields: dict[str, Any]) -> program.Job:
    """Returns the job that the flags describe."""
    expected = program.read_expected(given, shared.read_num_records(given))
    is_chosen = given.get(LIMIT.name) == DISCOVER
    guarantee = shared.read_guarantee(given)
    domain, mechanism = read_open_domain(given), _mechanism(given)
    read_workload = parse_linear_workload if mechanism.answers_linear_queries else parse_workload
    rows = given.get("num_synthetic_records")

    def request(declared: Domain) -> tuple[Workload | LinearWorkload, ReleaseOptions]:
        return read_workload(given["workload"], declared), ReleaseOptions(
            num_records=shared.read_num_records(given),
            count_left_out="count_left_out" in given,
            within_bins=given["within_bins"],  # type: ignore[arg-type]  # one of its choices
            records_format=given["records_format"],  # type: ignore[arg-type]  # as above
            num_synthetic_records=None if rows is None else integer("num_synthetic_records", rows),
            start_from=start_records(given, declared),
            queries=given["workload"],
            bin_sums=False if "without_bin_sums" in given else None,
        )

    stages = Stages(
        mechanism=mechanism,
        domain=domain,
        guarantee=guarantee,
        request=request,
        is_chosen=is_chosen,
        domain_share=read_share(given, isinstance(domain, OpenDomain)),
        is_paid=fields["ledger"] is not None,
    )
    return staged(Job(**fields, plan=stages.last, expect_records=expected), stages, given)


def _mechanism(given: dict[str, str]) -> Mechanism:
    check_mechanism(given, OPTIONS, NEEDED)
    chosen = SYNTHETIC[given["mechanism"]]
    return chosen(**values_of(chosen, given))


PROGRAM = program.Program("release_synthetic_database", FLAGS, __doc__, _read_job)
parse_arguments, main = PROGRAM.parse_arguments, PROGRAM.main

if __name__ == "__main__":
    raise SystemExit(main())
