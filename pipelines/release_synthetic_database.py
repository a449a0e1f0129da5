"""Release a synthetic database that answers a workload, with differential privacy.

    beam-dp release-synthetic-database \
        --input 'visits/*.parquet' --domain visits.json --workload marginals:3 \
        --epsilon 1 --delta 1e-9 --neighboring add_or_remove_one \
        --privacy_unit person_id --max_records_per_unit 1 --num_records noisy --output out/visits

Arguments are parsed, then everything is validated from public parameters, then the pipeline is
built: a bad argument costs one line and exit code 2, before any worker starts and with nothing
written. `beam-dp release-synthetic-database --help` lists the flags.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any, Literal

import apache_beam as beam

from beam_dp.domain import Domain
from beam_dp.domain.files import parse_domain
from beam_dp.errors import InputError, magnitude
from beam_dp.mechanisms import (
    MWEM,
    Gaussian,
    Laplace,
    Mechanism,
    Plan,
    SmallDB,
    plan_release,
)
from beam_dp.mechanisms.small_db.small_db import SmallDBPlan
from beam_dp.privacy.ledger import Token
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.workload import Workload, parse_workload
from beam_dp.releases import Release
from beam_dp.transforms import ReleaseSyntheticDatabase

from . import flags, program
from .common import left_out_json, promised_left_out, read_num_records, read_text
from .flags import Flag, FlagError, integer, number
from .record_number import read_expected, warn_of_number

MECHANISM = Flag(
    "mechanism",
    "mwem measures what is predicted to be best, then fits; laplace and gaussian measure all;"
    " small_db releases a few records that answer any linear queries",
    default="mwem",
    choices=("mwem", "laplace", "gaussian", "small_db"),
)
NUM_ROUNDS = Flag(
    "num_rounds",
    "rounds of mwem: a number, or 'annealed'; by default none, if the workload fits one model",
    "T",
)
SIZE = Flag("size", "small_db: how many records are released; or else --max_error_fraction", "M")
MAX_ERROR_FRACTION = Flag(
    "max_error_fraction",
    "small_db: so many records that they can answer up to this share of all records, 0 < A <= 1",
    "A",
)
VC_DIMENSION = Flag(
    "vc_dimension",
    "small_db: of the queries, where it is known, may need fewer records",
    "V",
)
SAMPLER = Flag(
    "sampler",
    "small_db: how the records are drawn, always exactly; auto decides by public sizes, and search,"
    " whose time depends on the data, is used by this name only",
    choices=("auto", "enumeration", "nested", "search"),
)
OF_SMALL_DB = (SIZE, MAX_ERROR_FRACTION, VC_DIMENSION, SAMPLER)
FLAGS = (
    *flags.COMMON,
    flags.COUNT_LEFT_OUT,
    flags.EXPECT_RECORDS,
    MECHANISM,
    NUM_ROUNDS,
    *OF_SMALL_DB,
)


@dataclass(frozen=True, kw_only=True)
class Job(program.ReleaseJob):
    """A synthetic database that is to be released."""

    domain: Domain
    workload: Workload | LinearWorkload
    workload_spec: str
    mechanism: Mechanism
    num_records: int | Literal["noisy"]
    plan: Plan
    expect_records: int | None

    def release(self, token: Token | None) -> beam.PTransform:
        """Returns the transform that releases, of the plan."""
        return ReleaseSyntheticDatabase.of_plan(self.mechanism, self.plan, token)

    def promised(self) -> dict[str, Any]:
        """Returns what tells two jobs apart."""
        return {
            "mechanism": self.mechanism.name,
            "guarantee": self.guarantee.to_json(),
            "domain": self.domain.to_json(),
            "workload": self.plan.workload.to_json(),
            "parameters": self.plan.public,
            **promised_left_out(self.plan.left_out),
        }

    def card(self) -> dict[str, Any]:
        """Returns what is known before any record is read."""
        return {
            **self.promised(),
            **left_out_json(self.plan.left_out),
            "num_records": self.num_records,
            "workload": self._workload_json(),
        }

    def entry(self) -> tuple[str, dict[str, Any]]:
        """Returns what the ledger's entry says."""
        return self.mechanism.name, {
            "num_records": self.num_records,
            "workload": self._workload_json(),
            **self.plan.public,
            **left_out_json(self.plan.left_out),
        }

    def _workload_json(self) -> Any:
        """Returns the workload, in a line where it has very many queries."""
        if isinstance(self.workload, Workload):
            return self.workload.to_json()
        return {"queries": self.workload_spec, "num_queries": len(self.workload)}

    def headline(self) -> str:
        """Returns what is done, in half a line."""
        what = "marginals" if isinstance(self.workload, Workload) else "linear queries"
        return (
            f"release of {len(self.domain.names)} attributes, {magnitude(self.domain.num_cells)}"
            f" cells, {len(self.workload):,} {what}"
        )

    def warnings(self) -> list[str]:
        """Returns what to tell before a release is made."""
        plan = self.plan
        if not (isinstance(plan, SmallDBPlan) and plan.choice.sampler_time_depends_on_data):
            return []
        return [
            "--sampler search: how long it takes depends on the records; use it only where nobody"
            " else sees the time"
        ]

    def tell(self, release: Release) -> None:
        """Prints where the release is, and what can be done with it."""
        warn_of_number(release, self.expect_records)
        print(f"The release is in {self.output}. Look at it:")
        directory = shlex.quote(self.output)
        names = shlex.quote(",".join(self.plan.workload.marginals[0]))
        print(f"  beam-dp describe {directory}")
        print(f"  beam-dp answer {directory} --marginal {names}")


def _read_job(given: dict[str, str], shared: dict[str, Any]) -> Job:
    """Returns the job that flags describe."""
    num_records = read_num_records(given)
    domain = parse_domain(read_text("domain", given["domain"]), source=given["domain"])
    read_workload = parse_linear_workload if given["mechanism"] == "small_db" else parse_workload
    workload: Workload | LinearWorkload = read_workload(given["workload"], domain)
    mechanism = _mechanism(given)
    expected = read_expected(given, num_records)
    left_out = "count_left_out" in given
    return Job(
        **shared,
        domain=domain,
        workload=workload,
        workload_spec=given["workload"],
        mechanism=mechanism,
        num_records=num_records,
        plan=plan_release(mechanism, domain, workload, shared["guarantee"], num_records, left_out),
        expect_records=expected,
    )


def _mechanism(given: dict[str, str]) -> Mechanism:
    name = given["mechanism"]
    calibration: Literal["tight", "textbook"]
    calibration = "tight" if given["calibration"] == "tight" else "textbook"
    if name == "small_db":
        return _small_db(given, calibration)
    for flag in OF_SMALL_DB:
        if flag.name in given:
            condition = f"must not be given: it is of small_db, not of {name}"
            raise InputError(flag.name, given[flag.name], condition)
    if name == "mwem":
        return MWEM(
            num_rounds=_num_rounds(given.get("num_rounds")),
            calibration=calibration,
        )
    if "num_rounds" in given:
        raise InputError(
            "num_rounds", given["num_rounds"], f"must not be given: {name} has no rounds"
        )
    return Gaussian(calibration) if name == "gaussian" else Laplace(calibration)


def _small_db(given: dict[str, str], calibration: Literal["tight", "textbook"]) -> SmallDB:
    if "num_rounds" in given:
        condition = "must not be given: small_db has no rounds"
        raise InputError("num_rounds", given["num_rounds"], condition)
    if "size" not in given and "max_error_fraction" not in given:
        raise FlagError(
            "--size: missing; must be given with --mechanism small_db, or --max_error_fraction"
        )
    fraction = given.get("max_error_fraction")
    return SmallDB(
        size=integer("size", given["size"]) if "size" in given else None,
        max_error_fraction=None if fraction is None else number("max_error_fraction", fraction),
        vc_dimension=(
            integer("vc_dimension", given["vc_dimension"]) if "vc_dimension" in given else None
        ),
        sampler=given.get("sampler", "auto"),  # type: ignore[arg-type]  # one of its choices
        calibration=calibration,
    )


def _num_rounds(text: str | None) -> int | Literal["annealed"] | None:
    if text is None:
        return None
    return "annealed" if text == "annealed" else integer("num_rounds", text, "or 'annealed'")


PROGRAM = program.Program("release_synthetic_database", FLAGS, __doc__, _read_job)
parse_arguments, main = PROGRAM.parse_arguments, PROGRAM.main

if __name__ == "__main__":
    raise SystemExit(main())
