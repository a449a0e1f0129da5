"""Commands of several runs, each of which makes one release; ``Stages`` plans them.

Each run commits its release in a folder of the output, before the next run is planned with it. If
the program is killed, the same command goes on from what is committed and never draws it again. A
ledger pays for all runs before the first one; its entry is marked before each later one is
submitted, and a command that finds the mark pays for its run again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from beam_dp.domain.discover import OpenDomain
from beam_dp.errors import InputError
from beam_dp.flags import shared
from beam_dp.flags.flag import FlagError, number, number_flag
from beam_dp.flags.shared import DISCOVER
from beam_dp.mechanisms.contract import Plan
from beam_dp.mechanisms.discovery.plan import DEFAULT_SHARE, MAX_SHARE
from beam_dp.mechanisms.discovery.records_per_unit import RECORDS_SHARE
from beam_dp.mechanisms.stages import EarlierStage, Stages
from beam_dp.privacy.ledger.entries import Entry, Token
from beam_dp.releases.domain.earlier import UnitCounts, check_edges_paid, entry_of, origin_of
from beam_dp.releases.domain.release import DomainRelease
from beam_dp.releases.files.commit import JOB, complete_committed, holds_card
from beam_dp.releases.kinds import read_release
from beam_dp.releases.release import Release
from beam_dp.storage.open import store_for
from beam_dp.storage.store import DRAFT_PREFIX, Store

from . import program
from .progress import Progress
from .running import is_launched

if TYPE_CHECKING:
    import apache_beam as beam

LIMIT = dataclasses.replace(
    shared.MAX_RECORDS_PER_UNIT,
    help=f"{shared.MAX_RECORDS_PER_UNIT.help}; or discover: let the release choose it, which"
    f" uses {100 * RECORDS_SHARE:g} % of epsilon",
    metavar=f"K|{DISCOVER}",
    word=DISCOVER,
)
MOST = shared.MOST_RECORDS_PER_UNIT
DOMAIN_SHARE = number_flag(
    "domain_share",
    "with a domain whose attributes are to be discovered: the part of the budget that finds values"
    f" and bins, > 0 and at most 0.5 (default: {DEFAULT_SHARE:g})",
    "SHARE",
    limits={"above": 0, "most": MAX_SHARE},
)
# Flags that don't change what is released, or that the card states in another form.
_PROMISE = {"epsilon", "delta", "neighboring", "privacy_unit", "max_records_per_unit"}
_PAYMENT = {"ledger", "dataset_id", "who", "purpose"}
_RUN = {"output", "validate_only", "json", "expect_records", "allow_large_delta"}
_NOT_STATED = _PROMISE | _PAYMENT | _RUN | {"domain", "domain_share"}
_NOTE = "job.json"


def read_share(given: Mapping[str, str], is_open: bool) -> float | None:
    """Returns the share of the budget for a domain; refuses it without anything to discover."""
    text = given.get(DOMAIN_SHARE.name)
    if text is not None and not is_open:
        condition = 'needs attributes with "discover" in --domain'
        raise FlagError(f"--{DOMAIN_SHARE.name} {condition}")
    return None if text is None else number(DOMAIN_SHARE.name, text)


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
            job: dict[str, str] = json.loads(store.read(f"{draft}/{_NOTE}"))
            return job
    return None


def _notes(store: Store) -> list[str]:
    return [draft for draft in store.drafts() if draft.startswith(f"{DRAFT_PREFIX}{JOB}-")]


@dataclass(frozen=True, kw_only=True)
class StagedJob(program.Job):
    """The job of the first of several runs; its release is in a folder of the last output.

    ``stages``: those of all runs. ``last``: the job of the last run, for the most that may be
    found; the loss of its plan is that of all runs. ``flags``: what no card states of the command,
    and the next run compares.
    """

    plan: EarlierStage
    stages: Stages
    last: program.Job
    flags: Mapping[str, str]

    @property
    def done(self) -> str:  # type: ignore[override]  # the same for all other jobs of a class
        """What this run did."""
        return self.plan.done

    @property
    def last_run(self) -> program.Job:
        """The job of the last run."""
        return self.last

    @property
    def paid_plan(self) -> Plan:
        """The plan that the ledger pays for: that of all runs."""
        return self.stages.last

    def add(
        self, records: beam.PCollection[Any], token: Token | None = None
    ) -> beam.PCollection[str]:
        """Adds the transforms that make and write the release."""
        return _add(records, self.plan, self.output, self.beside, token)

    def headline(self) -> str:
        """Returns a short description of the run."""
        return self.plan.headline

    def facts(self) -> dict[str, str]:
        """Returns the lines of the preview about this run."""
        return self.plan.facts

    def tell(self, release: Release) -> None:
        """Prints what was found or chosen."""
        print(f"{self.plan.result_text(release)}: {self.output}")

    def preview(self) -> None:
        """Prints a preview of all runs; errors are those for the most that may be found."""
        plans, domain, facts = self.stages.plans[0], self.stages.domain, dict[str, str]()
        for plan in plans:
            facts |= plan.facts
        facts |= self.last.facts()
        if self.stages.is_chosen:
            limit = f"{self.stages.guarantee.max_records_per_unit:,} records per unit"
            facts["error"] += f", with {limit}; in proportion for fewer"
        card, headline = self.last.card(), self.last.headline()
        if isinstance(domain, OpenDomain):
            card, headline = {**card, "domain": domain.to_json()}, f"at most a {headline}"
        headlines = [*(plan.headline for plan in plans), headline]
        self.last.print_preview(card, ", then ".join(headlines), facts)

    def run(self, progress: Progress) -> int:
        """Makes each release that no earlier run of this command has committed."""
        if is_launched(self.pipeline()):
            name, value = self.plan.asked_by
            condition = "must not be discovered: the launcher starts only one job"
            raise InputError(name, value, condition)
        job = self.resumed()
        if isinstance(job, StagedJob):  # builds all runs before the first one is paid
            records = self.pipeline() | "Read" >> self.source()
            places = job.stages.places(job.last.output)
            for plan, (output, beside) in zip(job.stages.plans[0], places, strict=False):
                _add(records, plan, output, beside)
            job.last.add(records)
            job.last.probe()
        while isinstance(job, StagedJob):
            exit_code = program.Job.run(job, progress)
            if exit_code:
                return exit_code
            job = job.rest(job.read())
        return job.run(progress)

    def submit(self, pipeline: beam.Pipeline, progress: Progress) -> bool:
        """Keeps the flags of the job; then marks the entry, and runs the pipeline."""
        # The job is paid: without the note, the next run only compares less.
        with contextlib.suppress(OSError):
            note_job(self.last.output, self.flags)
        return super().submit(pipeline, progress)

    def resumed(self) -> program.Job:
        """Returns the job of the runs that are left, after those that are committed."""
        release = self.committed()
        return self if release is None else self.rest(release)

    def committed(self) -> DomainRelease | UnitCounts | None:
        """Returns the release that an earlier run of the same command has committed, if any."""
        if not holds_card(self.output):
            return None
        complete_committed(self.output)
        release = self.read()
        expected = json.loads(json.dumps(self.identity()))
        reason = program.difference(release.read_from or release.card, expected)
        noted = noted_job(self.last.output)
        if reason is None and noted is not None:
            reason = program.difference({"flags": noted}, {"flags": dict(self.flags)})
        if reason is not None:
            if isinstance(release, DomainRelease):  # who pays decides the split of the budget
                check_edges_paid(release.result.attributes, self.ledger, self.dataset_id)
            condition = f"contains the {self.plan.what} of another job: {reason}"
            raise InputError("output", self.output, f"{condition}; use another --output")
        return release

    def read(self) -> DomainRelease | UnitCounts:
        """Returns the committed release."""
        return read_release(self.output, kind=self.plan.kind)

    def payer_of(self, release: DomainRelease | UnitCounts) -> Entry | None:
        """Returns the ledger's entry that paid for a release and those that follow."""
        origin = origin_of(release)
        source = f"the {self.plan.what} in {self.output} come from the release {origin.text}"
        entry = entry_of(source, origin, self.ledger, self.dataset_id)
        if entry is not None and self.ledger is not None:
            plan = self.paid_plan
            entry.check(plan.mechanism, plan.promised, plan.loss)
            if entry.draw_id is None and self.names_draw:
                # Killed between the commit and the record of the draw.
                self.ledger.mark_released(entry, release.draw_id)
        if isinstance(release, DomainRelease):
            check_edges_paid(release.result.attributes, self.ledger, self.dataset_id)
        return entry

    def rest(self, release: DomainRelease | UnitCounts) -> program.Job:
        """Returns the job of the runs after this one, which a marked entry does not pay for."""
        entry, turn, notes = self.payer_of(release), self.turn + 1, self.notes
        is_paid_again = self._is_used_up(entry, turn)
        if entry is not None and is_paid_again:
            text = f"{entry.release_id} paid for a run that was submitted: the rest is paid again"
            entry, turn, notes = None, 0, (*notes, text)
        after = f", with the {self.plan.what} of {self.output}"
        last = dataclasses.replace(self.last, entry=entry, turn=turn, after=after, notes=notes)
        stages = self.stages.after(release, is_paid_again=is_paid_again)
        job = staged(last, stages, self.flags)
        return job.resumed() if isinstance(job, StagedJob) else job

    def _is_used_up(self, entry: Entry | None, turn: int) -> bool:
        """Returns whether the second run was submitted and has not committed what it drew."""
        if entry is None or self.ledger is None or not self.ledger.is_state_used(entry, turn):
            return False
        second, *later = [directory for directory, _ in self.stages.places(self.last.output)[1:]]
        if not later or not holds_card(second):
            return True
        return origin_of(read_release(second)).ledger_release != entry.release_id


def _add(
    records: beam.PCollection[Any],
    plan: EarlierStage,
    output: str,
    beside: str | None,
    token: Token | None = None,
) -> beam.PCollection[str]:
    from beam_dp.transforms.drawing.release import ReleaseEarlier
    from beam_dp.transforms.writing import WriteRelease

    released = records | f"Release {plan.what}" >> ReleaseEarlier(plan, token)
    return released | f"Write {plan.what}" >> WriteRelease(output, beside)


def staged(last: program.Job, stages: Stages, flags: Mapping[str, str]) -> program.Job:
    """Returns the job of the first stage; ``last``: that of the last one; ``flags``: as typed."""
    plans, plan = stages.plans
    flags = {name: text for name, text in flags.items() if name not in _NOT_STATED}
    places = stages.places(last.output)
    last = dataclasses.replace(last, plan=plan, beside=places[-1][1])
    if not plans:
        return last
    output, beside = places[0]
    fields = {field.name: getattr(last, field.name) for field in dataclasses.fields(program.Job)}
    fields |= {"plan": plans[0], "output": output, "beside": beside, "after": ""}
    fields["names_draw"] = len(plans) == 1
    return StagedJob(**fields, stages=stages, last=last, flags=flags)
