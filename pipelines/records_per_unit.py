"""The run before all others that chooses how many records of each privacy unit are used.

Noisy counts of units are committed in a folder of the output; the number follows from them, and the
later runs are planned with it. A ledger pays for all runs before this one. See also ``discovery``,
for what a killed program's next run does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import apache_beam as beam

from beam_dp.errors import InputError
from beam_dp.flags import shared
from beam_dp.flags.flag import FlagError
from beam_dp.flags.shared import DISCOVER
from beam_dp.mechanisms.discovery.records_per_unit import (
    RECORDS_SHARE,
    RecordsPlan,
    later_epsilon,
)
from beam_dp.privacy.guarantee import RECORD
from beam_dp.privacy.ledger.entries import Entry, Token
from beam_dp.releases.domain.earlier import RECORDS_FOLDER
from beam_dp.releases.domain.unit_counts import UnitCounts, records_of
from beam_dp.releases.kinds import read_release
from beam_dp.releases.release import Release
from beam_dp.transforms import WriteRelease
from beam_dp.transforms.drawing.release_domain import ReleaseRecordsPerUnit

from . import program
from .discovery import FirstJob
from .progress import Progress
from .runners import make_pipeline
from .running import is_launched

LIMIT = dataclasses.replace(
    shared.MAX_RECORDS_PER_UNIT,
    help=f"{shared.MAX_RECORDS_PER_UNIT.help}; or discover, which chooses the number for"
    f" {RECORDS_SHARE:g} of epsilon",
    metavar=f"K|{DISCOVER}",
    word=DISCOVER,
)
MOST = shared.MOST_RECORDS_PER_UNIT


def is_to_choose(given: Mapping[str, str]) -> bool:
    """Returns whether the records per unit are to be chosen; refuses flags that contradict."""
    if given.get(LIMIT.name) != DISCOVER:
        if MOST.name in given:
            raise FlagError(f"--{MOST.name} needs --{LIMIT.name} {DISCOVER}")
        return False
    if given["privacy_unit"] == RECORD:
        raise FlagError(f"--{LIMIT.name} {DISCOVER} needs a column as --privacy_unit")
    if given["num_records"] != "noisy":
        raise FlagError(
            f"--{LIMIT.name} {DISCOVER} needs --num_records noisy: the number of records that are"
            " used follows from private counts"
        )
    for name in ("count_left_out", "max_unit_cost"):
        if name in given:
            raise FlagError(f"--{name} must be left out with --{LIMIT.name} {DISCOVER}")
    if given["mechanism"] == "small_db":
        condition = "needs a mechanism that measures tables, not small_db"
        raise FlagError(f"--{LIMIT.name} {DISCOVER} {condition}")
    return True


@dataclass(frozen=True, kw_only=True)
class RecordsJob(FirstJob):
    """The job that counts units by their numbers of records.

    ``is_named``: whether the ledger's entry names the draw of this job, not that of a domain.
    """

    done: ClassVar[str] = "chose the records per unit"
    what: ClassVar[str] = "records per unit"

    records: RecordsPlan
    is_named: bool

    @property
    def names_draw(self) -> bool:
        """Whether the ledger's entry names the draw of this job."""
        return self.is_named

    def add(
        self, records: beam.PCollection[Any], token: Token | None = None
    ) -> beam.PCollection[str]:
        """Adds the transforms that count units and write the counts."""
        released = records | "Count records per unit" >> ReleaseRecordsPerUnit(self.records, token)
        return released | "Write records per unit" >> WriteRelease(self.output)

    def identity(self) -> dict[str, Any]:
        """Returns the part of the card that distinguishes jobs, independent of the records."""
        return {**super().identity(), "parameters": self.records.parameters}

    def headline(self) -> str:
        """Returns a short description of the job."""
        return f"choice of at most {self.records.most:,} records per unit"

    def facts(self) -> dict[str, str]:
        """Returns the lines of the preview about the choice."""
        spent = self.records.counts.guarantee.epsilon
        told = (
            f"at most {self.records.most:,}: epsilon {spent:.4g} chooses the number, epsilon"
            f" {later_epsilon(self.records.whole):.4g} is left"
        )
        return {"records per unit": told}

    def tell(self, release: Release) -> None:
        """Prints the chosen number."""
        assert isinstance(release, UnitCounts)
        number = records_of(release).main.max_records_per_unit
        print(f"Chose {number:,} as the records per unit: {self.output}")

    def committed(self) -> UnitCounts | None:
        """Returns the counts that an earlier run of the same command has committed, if any."""
        return self.released(UnitCounts)

    def entry_of(self, found: UnitCounts) -> Entry | None:
        """Returns the ledger's entry that paid for counts and the later runs."""
        entry, paid = self.payer_of(found), found.plan.get("ledger_release")
        if paid is not None and self.ledger is None:
            condition = f"must be given, the ledger that paid for {self.output} ({paid})"
            raise InputError("ledger", None, condition)
        if entry is None and self.ledger is not None:
            condition = f"must be the ledger that paid for {self.output} ({paid or 'no ledger'})"
            raise InputError("ledger", self.ledger.name, condition)
        return entry


@dataclass(frozen=True, kw_only=True)
class ChoosingJob(program.Job):
    """A job whose records per unit are chosen by a run before the others.

    ``plan``: that of the last run for the most records; its loss is that of all runs.
    ``largest``: the later job for the most records. ``then``: makes the later job from the counts.
    """

    first: RecordsJob
    largest: program.Job
    then: Callable[[UnitCounts], program.Job]

    def add(
        self, records: beam.PCollection[Any], token: Token | None = None
    ) -> beam.PCollection[str]:
        """Adds all runs, to check that they can be built."""
        self.first.add(records)
        return self.largest.add(records)

    def card(self) -> dict[str, Any]:
        """Returns the part of the card that is known before any record is read."""
        return self.largest.card()

    def headline(self) -> str:
        """Returns a short description of the job."""
        return f"{self.first.headline()}, then {self.largest.headline()}"

    def facts(self) -> dict[str, str]:
        """Returns the lines of the preview; errors are those for the most records per unit."""
        found = {**self.first.facts(), **self.largest.facts()}
        most = f"{self.first.records.most:,} records per unit; in proportion for fewer"
        return {**found, "error": f"{found['error']}, with {most}"}

    def warnings(self) -> list[str]:
        """Returns the warnings to print before anything is paid."""
        return self.largest.warnings()

    def tell(self, release: Release) -> None:
        """Prints nothing: every run prints its own results."""

    def run(self, progress: Progress) -> int:
        """Counts units, unless an earlier run of this command did; then runs the later job."""
        pipeline = make_pipeline(self.beam_flags, self.output)
        if is_launched(pipeline):
            condition = "must be a number: the launcher starts only one job"
            raise InputError(LIMIT.name, DISCOVER, condition)
        found = self.first.committed()
        if found is None:
            program.build(self, pipeline)
            self.largest.probe()
            exit_code = self.first.run(progress)
            if exit_code:
                return exit_code
            found = read_release(self.first.output, kind=UnitCounts)
        return self.then(found).run(progress)


def records_folder(output: str) -> str:
    """Returns the directory of the choice in that of the release that follows."""
    return f"{output.rstrip('/')}/{RECORDS_FOLDER}"
