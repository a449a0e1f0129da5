"""Runs before the main one: that chooses the records per unit, and that releases the domain.

Each commits its release in a folder of the output, before the next run is planned with it. If the
program is killed, the same command goes on from what is committed and never draws it again. A
ledger pays for all runs before the first one; its entry is marked before the main one is submitted,
and a command that finds the mark pays for its main run again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import apache_beam as beam

from beam_dp.errors import InputError
from beam_dp.flags import shared
from beam_dp.flags.flag import FlagError, number, number_flag
from beam_dp.flags.shared import DISCOVER
from beam_dp.mechanisms.contract import Plan
from beam_dp.mechanisms.discovery.plan import DEFAULT_SHARE, DomainPlan
from beam_dp.mechanisms.discovery.records_per_unit import (
    RECORDS_SHARE,
    RecordsPlan,
)
from beam_dp.privacy.guarantee import RECORD
from beam_dp.privacy.ledger.entries import Entry, Token
from beam_dp.releases.domain.earlier import RECORDS_FOLDER, check_edges_paid
from beam_dp.releases.domain.release import FOLDER, DomainRelease
from beam_dp.releases.domain.unit_counts import UnitCounts, records_of
from beam_dp.releases.files.commit import JOB, complete_committed, holds_card
from beam_dp.releases.kinds import read_release
from beam_dp.releases.release import Release
from beam_dp.storage.open import store_for
from beam_dp.storage.store import DRAFT_PREFIX, Store
from beam_dp.transforms.drawing.release import ReleaseDomain, ReleaseRecordsPerUnit
from beam_dp.transforms.writing import WriteRelease
from beam_dp.views.domain import found_text

from . import program
from .progress import Progress
from .runners import make_pipeline
from .running import is_launched

DOMAIN_SHARE = number_flag(
    "domain_share",
    "with a domain whose attributes are to be discovered: the part of the budget that finds values"
    f" and bins, > 0 and at most 0.5 (default: {DEFAULT_SHARE:g})",
    "SHARE",
)
# Flags that don't change what is released, or that the card states in another form.
_NOT_STATED = frozenset(
    [
        *("domain", "domain_share", "output", "ledger", "dataset_id", "who", "purpose"),
        *("epsilon", "delta", "neighboring", "privacy_unit", "max_records_per_unit"),
        *("validate_only", "json", "expect_records", "allow_large_delta"),
    ]
)
# The number of the first mark in the ledger's entry; runs leave marks in turn.
_FIRST_STATE = 1
_NOTE = "job.json"
ReleaseT = TypeVar("ReleaseT", bound=Release)


def domain_folder(output: str) -> str:
    """Returns the directory of the domain's release in an output."""
    return f"{output.rstrip('/')}/{FOLDER}"


def refuse_share(given: Mapping[str, str]) -> None:
    """Refuses a share of the budget for a domain without anything to discover."""
    if DOMAIN_SHARE.name in given:
        condition = 'needs attributes with "discover" in --domain'
        raise FlagError(f"--{DOMAIN_SHARE.name} {condition}")


def read_share(given: Mapping[str, str]) -> tuple[float | None, dict[str, str]]:
    """Returns the share of the budget for a domain, and the flags that no card states."""
    text = given.get(DOMAIN_SHARE.name)
    share = None if text is None else number(DOMAIN_SHARE.name, text)
    stated = {name: text for name, text in given.items() if name not in _NOT_STATED}
    return share, stated


def note_job(output: str, job: Mapping[str, str]) -> None:
    """Keeps the flags of a job in a private draft of its output, for the next run to compare.

    Paths may be private, so no card has them. The draft goes when the last release is committed.
    """
    store = store_for(output, "output")
    for draft in _notes(store):
        store.remove_draft(draft)
    store.write_draft(store.open_draft(JOB), _NOTE, json.dumps(job).encode())


def noted_job(output: str) -> dict[str, str] | None:
    """Returns the flags that an earlier run of a job has kept; None if there are none."""
    store = store_for(output, "output")
    for draft in _notes(store):
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, str] = json.loads(store.read(f"{draft}/{_NOTE}"))
            return found
    return None


def _notes(store: Store) -> list[str]:
    return [each for each in store.drafts() if each.startswith(f"{DRAFT_PREFIX}{JOB}-")]


@dataclass(frozen=True, kw_only=True)
class FirstJob(program.Job):
    """The job of a run whose release the next run is planned with.

    ``later``: the plan of the last run for the most that may be found; its loss is that of all
    runs. ``entry``: the ledger's entry, if an earlier run has paid. ``last_output``: the output of
    the last run. ``flags``: what the cards do not state of the job, and the next run compares.
    """

    what: ClassVar[str]  # of which this is the release

    later: Plan
    last_output: str
    flags: Mapping[str, str]
    entry: Entry | None = None

    @property
    def paid_plan(self) -> Plan:
        """The plan that the ledger pays for: that of all runs."""
        return self.later

    def token(self) -> Token | None:
        """Returns the entry, or a token for the future payment; None without a ledger."""
        return super().token() if self.entry is None else self.entry

    def submit(self, pipeline: beam.Pipeline, progress: Progress) -> bool:
        """Marks the entry of an earlier run, so that no later run uses it; then runs."""
        # The job is paid: without the note, the next run only compares less.
        with contextlib.suppress(OSError):
            note_job(self.last_output, self.flags)
        if self.entry is not None:
            self._use(self.entry, _FIRST_STATE)
        return super().submit(pipeline, progress)

    def released(self, kind: type[ReleaseT]) -> ReleaseT | None:
        """Returns the release that an earlier run of the same command has committed, if any."""
        if not holds_card(self.output):
            return None
        complete_committed(self.output)
        found = read_release(self.output, kind=kind)
        expected = json.loads(json.dumps(self.identity()))
        reason = program.difference(found.read_from or found.card, expected)
        noted = noted_job(self.last_output)
        if reason is None and noted is not None:
            reason = program.difference({"flags": noted}, {"flags": dict(self.flags)})
        if reason is not None:
            if isinstance(found, DomainRelease):  # who pays decides the split of the budget
                check_edges_paid(found.domain, self.ledger, self.dataset_id)
            condition = f"contains the {self.what} of another job: {reason}; use another --output"
            raise InputError("output", self.output, condition)
        return found

    def payer_of(self, found: Release) -> Entry | None:
        """Returns the ledger's entry that paid for a release and those that follow."""
        if self.ledger is None:
            return None
        held = {each.release_id: each for each in self.ledger.entries(self.dataset_id)}
        entry = held.get(str(found.plan.get("ledger_release")))
        if entry is None:
            return None
        entry.check(self.later.mechanism, self.later.promised, self.later.loss)
        if entry.draw_id is None and self.names_draw:
            # Killed between the commit and the record of the draw.
            self.ledger.mark_released(entry, found.draw_id)
        return entry

    @property
    def _state(self) -> int:
        """The number of the mark that the next run leaves in the ledger's entry."""
        return _FIRST_STATE if self.entry is None else _FIRST_STATE + 1

    def is_marked(self, entry: Entry) -> bool:
        """Returns whether the next run of an entry was already submitted."""
        assert self.ledger is not None
        return self.ledger.is_state_used(entry, self._state)

    def mark(self, entry: Token) -> None:
        """Marks an entry before its next run is submitted; only one call succeeds."""
        self._use(entry, self._state)

    def _use(self, entry: Token, state: int) -> None:
        assert self.ledger is not None
        self.ledger.use_state(entry, state)


@dataclass(frozen=True, kw_only=True)
class DomainJob(FirstJob):
    """The job that releases a domain, into the folder of the output.

    ``told``: the warnings about the later release.
    """

    done: ClassVar[str] = "found the levels of the domain"
    what: ClassVar[str] = "domain"

    plan: DomainPlan
    told: Sequence[str] = ()
    beside: str | None = RECORDS_FOLDER

    def add(
        self, records: beam.PCollection[Any], token: Token | None = None
    ) -> beam.PCollection[str]:
        """Adds the transforms that release and write the domain."""
        released = records | "Release domain" >> ReleaseDomain(self.plan, token)
        return released | "Write domain" >> WriteRelease(self.output, self.beside)

    def headline(self) -> str:
        """Returns a short description of the job."""
        names = [each.name for each in self.plan.domain.open]
        more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
        return f"discovery of {', '.join(names[:3])}{more}"

    def facts(self) -> dict[str, str]:
        """Returns the lines of the preview about the discovery."""
        epsilon, main = self.plan.guarantee.epsilon, self.plan.main
        split = (
            f"{100 * self.plan.share:g} % of the budget: epsilon {epsilon:.4g} finds them,"
            f" epsilon {main.epsilon:.4g} with delta {main.delta:g} is left for the release"
        )
        found = {f"of {names}": text for names, text in self.plan.sought.items()}
        other = "which share of the records will be in other is not known before the release"
        return {"to discover": split, **found, "in other": other}

    def warnings(self) -> list[str]:
        """Returns the warnings to print before anything is paid."""
        return list(self.told)

    def tell(self, release: Release) -> None:
        """Prints what was found."""
        assert isinstance(release, DomainRelease)
        print(f"{found_text(release)}: {self.output}")

    def committed(self) -> DomainRelease | None:
        """Returns the domain that an earlier run of the same command has committed, if any."""
        return self.released(DomainRelease)

    def entry_of(self, found: DomainRelease) -> Entry | None:
        """Returns the ledger's entry that paid for a domain and the release that uses it."""
        entry = self.payer_of(found)
        check_edges_paid(found.domain, self.ledger, self.dataset_id)
        return entry


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
            f" {self.records.chosen(1).main.epsilon:.4g} is left"
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
