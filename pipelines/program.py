"""The steps of every program: parse, plan once, build, pay, run, and report the result.

A program parses flags into a ``Job``, which defines the release. All checks come before the budget
is spent, and noise is drawn only afterwards. A failed job has also spent its budget, because
someone may have seen the job's noise.
"""

from __future__ import annotations

import json
import shlex
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from rich.console import Console, Group
from rich.text import Text

from beam_dp.errors import InputError, shown
from beam_dp.flags.command_line import importing
from beam_dp.flags.flag import Flag, check_together, integer
from beam_dp.flags.shared import EXPECT_RECORDS, PAIRS, read_ledger, read_origin
from beam_dp.mechanisms.checks import NumRecords
from beam_dp.mechanisms.contract import Plan
from beam_dp.mechanisms.marginals.measure_all import MeasureAllPlan
from beam_dp.mechanisms.marginals.plan import MarginalsPlan
from beam_dp.privacy.ledger.entries import Entry, LaterToken, Origin, Token
from beam_dp.privacy.rounding import down_to_digits
from beam_dp.releases.files.commit import probe_output
from beam_dp.releases.kinds import read_release
from beam_dp.releases.release import Release
from beam_dp.views.terminal import plain_table, plain_text, promise_facts, short, surely

from . import flags
from .progress import Progress
from .running import (
    is_launched,
    mark_released,
    mark_submitted,
    run_main,
    run_pipeline,
    stage_pipeline,
)

if TYPE_CHECKING:
    import apache_beam as beam

    Transform = beam.PTransform[Any, Any]
    from beam_dp.privacy.ledger.ledger import Ledger


@dataclass(frozen=True, kw_only=True)
class Job(ABC):
    """The checked flags of a program, and the plan, which is made from the flags only once.

    ``input`` is a glob of files, or empty if the records come from another transform.
    ``as_json``: whether ``validate_only`` prints JSON. ``beside``: the name of a subfolder of
    ``output`` that may exist. ``entry``: the ledger's entry, if an earlier run of the same command
    has paid; ``turn``: the number of the mark that this run leaves in it. ``after``: the release
    of the run before. ``notes``: more warnings. ``names_draw``: whether the entry names the draw of
    this job.
    """

    done: ClassVar[str] = "released"

    input: str
    input_format: str | None
    plan: Plan
    ledger: Ledger | None
    dataset_id: str
    origin: Origin | None
    output: str
    validate_only: bool
    as_json: bool
    beam_flags: tuple[str, ...]
    beside: str | None = None
    entry: Entry | None = None
    turn: int = 0
    after: str = ""
    notes: tuple[str, ...] = ()
    names_draw: bool = True

    @abstractmethod
    def add(
        self, records: beam.PCollection[Any], token: Token | None = None
    ) -> beam.PCollection[str]:
        """Adds the transforms that make and write the release; returns the release's directory."""

    @abstractmethod
    def headline(self) -> str:
        """Returns a short description of the job."""

    @abstractmethod
    def facts(self) -> dict[str, str]:
        """Returns the lines of the preview for this kind of release, including its errors."""

    @abstractmethod
    def tell(self, release: Release) -> None:
        """Prints the location of the release, and commands that read it."""

    def warnings(self) -> list[str]:
        """Returns the warnings to print before anything is paid."""
        return list(self.notes)

    def card(self) -> dict[str, Any]:
        """Returns the part of the card that is known before any record is read."""
        return self.plan.card()

    def identity(self) -> dict[str, Any]:
        """Returns the part of the card that distinguishes jobs, independent of the records."""
        return self.plan.identity()

    def source(self) -> beam.PTransform:
        """Returns the transform that reads the records."""
        from beam_dp.transforms.reading.read import ReadRecords

        return ReadRecords(self.input, file_format=self.input_format)

    @property
    def paid_plan(self) -> Plan:
        """The plan that the ledger pays for."""
        return self.plan

    @property
    def last_run(self) -> Job:
        """The job of the last run of the command; it reads all columns that others read."""
        return self

    def token(self) -> Token | None:
        """Returns the entry, or a token for the future payment; None without a ledger."""
        if self.ledger is None or self.entry is not None:
            return self.entry
        plan = self.paid_plan
        return LaterToken(self.dataset_id, plan.mechanism, plan.promised, plan.loss)

    def pay(self, token: LaterToken) -> None:
        """Pays for a release whose pipeline is built; spends nothing if the ledger refuses."""
        assert self.ledger is not None
        plan = self.paid_plan
        token.pay(
            self.ledger.spend(
                self.dataset_id,
                guarantee=plan.promised,
                loss=plan.loss,
                mechanism=plan.mechanism,
                parameters=plan.entry(),
                origin=self.origin,
            )
        )

    def mark(self) -> None:
        """Marks the entry of an earlier run, so that no later run uses it; succeeds only once."""
        assert self.ledger is not None and self.entry is not None
        self.ledger.use_state(self.entry, self.turn)

    def budget(self) -> dict[str, Any]:
        """Returns the cost and the remaining budget; raises if the ledger would refuse to pay."""
        if self.ledger is None:
            return {}
        loss, promised = self.plan.loss, self.plan.promised
        self.ledger.check(self.dataset_id, promised, loss)
        account = self.ledger.account(self.dataset_id)
        slack = {"remaining_slack": account.largest_slack(loss)} if loss.slack else {}
        ledger = {
            "dataset_id": self.dataset_id,
            "budget": {"epsilon": account.epsilon, "delta": account.delta},
            "loss": loss.to_json(),
            "remaining_epsilon": account.largest_epsilon(loss.kind, promised.delta),
            **slack,
        }
        return {"ledger": ledger}

    def preview(self) -> None:
        """Prints a preview of the release; nothing is read, paid or written."""
        self.print_preview(self.card(), self.headline(), self.facts())

    def print_preview(self, card: dict[str, Any], headline: str, facts: dict[str, str]) -> None:
        """Prints a preview with this card, short description and lines about the release."""
        plan, card = self.plan, card | self.budget()
        if self.as_json:
            print(json.dumps(card, indent=2, ensure_ascii=False))
            return
        rows = {
            "what": headline,
            "mechanism": plan.mechanism,
            **promise_facts(plan.promised),
            **facts,
        }
        if plan.left_out is not None:
            share = plan.left_out.to_json()["budget"]["left_out"]["epsilon"]
            text = f"records outside the domain are counted, for epsilon {share:.4g} of the total"
            rows["left out"] = text
        memory = f"about {plan.memory_bytes / 1e6:,.0f} MB"
        rows["memory"] = f"{memory} on the worker that draws the noise"
        rows["budget"] = _cost(card.get("ledger"))
        if self.origin is not None:
            purpose = self.origin.purpose
            rows["by"] = self.origin.who + ("" if purpose is None else f", for {purpose}")
        rows |= {"input": self.input, "output": self.output}
        below = [f"warning: {warning}" for warning in self.warnings()[:_SHOWN_WARNINGS]]
        below.append("Nothing was read, paid or written. --json prints the card's public part.")
        shown = plain_table(("would be released", ""), rows.items())
        Console().print(Group(shown, Text(), *map(plain_text, below)))

    def pipeline(self) -> beam.Pipeline:
        """Returns an empty pipeline; only now is Beam imported."""
        with importing():
            from .runners import make_pipeline
        return make_pipeline(self.beam_flags, self.output)

    def run(self, progress: Progress) -> int:
        """Builds the pipeline, pays, and runs it; returns the exit code. Refusals spend nothing."""
        token = self.token()
        self.probe()
        is_paid_now = isinstance(token, LaterToken)
        if is_paid_now and self.ledger is not None:
            self.ledger.check(self.dataset_id, self.paid_plan.promised, self.paid_plan.loss)
        pipeline = self.pipeline()
        build(self, pipeline, token)
        progress.tell_warnings()
        for warning in self.warnings():
            print(f"warning: {warning}", file=sys.stderr)
        if isinstance(token, LaterToken):
            self.pay(token)
            progress.say(f"spent: {token.release_id} in the ledger")
        progress.say(f"{self.headline()}{self.after}; runner {type(pipeline.runner).__name__}")
        if not mark_submitted(self.ledger, token):
            return flags.EXIT_JOB_FAILED
        if is_launched(pipeline):
            return stage_pipeline(pipeline, progress)
        if not self.submit(pipeline, progress):
            return flags.EXIT_JOB_FAILED
        try:
            # If workers do not share this directory, the message below explains the problem.
            release = read_release(self.output)
        except InputError as error:
            print(f"error: {error}; every worker must see --output", file=sys.stderr)
            return flags.EXIT_JOB_FAILED
        reason = other_than(release, self.identity(), token)
        if reason is not None:
            stays = "" if token is None else f", and {token.release_id} stays marked as submitted"
            print(
                f"error: --output: {self.output!r} contains the release of another job: {reason};"
                f" this job's draw was discarded{stays}",
                file=sys.stderr,
            )
            return flags.EXIT_JOB_FAILED
        progress.say(self.done)
        if is_paid_now and self.names_draw and self.ledger is not None and token is not None:
            mark_released(self.ledger, token, release.draw_id)
        is_kept = self.keep(release)
        self.tell(release)
        return 0 if is_kept else flags.EXIT_JOB_FAILED

    def probe(self) -> None:
        """Refuses an output where the release can't be committed."""
        probe_output(self.output, self.beside, self.paid_plan.disk_bytes)

    def submit(self, pipeline: beam.Pipeline, progress: Progress) -> bool:
        """Runs the pipeline of a paid job to its end; returns whether it succeeded."""
        if self.entry is not None:
            self.mark()
        return run_pipeline(pipeline, progress, [self.output])

    def keep(self, release: Release) -> bool:
        """Saves the job's results other than the release; returns whether this succeeded."""
        return True


@dataclass(frozen=True, kw_only=True)
class ReleaseJob(Job):
    """A job whose single transform creates the release; used for all jobs except answers."""

    expect_records: int | None = None

    @abstractmethod
    def release(self, token: Token | None) -> beam.PTransform:
        """Returns the transform that creates the release, which the token pays for."""

    def add(
        self, records: beam.PCollection[Any], token: Token | None = None
    ) -> beam.PCollection[str]:
        """Adds the transforms that release the records and write the release."""
        from beam_dp.transforms.writing import WriteRelease

        written = "Write" >> WriteRelease(self.output, self.beside)
        return records | "Release" >> self.release(token) | written

    @abstractmethod
    def advice(self) -> tuple[str, str]:
        """Returns a remark about the release, and example flags of ``beam-dp answer``."""

    def tell(self, release: Release) -> None:
        """Prints the location of the release, and commands that read it."""
        warning = warning_of_number(release, self.expect_records)
        if warning is not None:
            print(f"warning: {warning}", file=sys.stderr)
        directory, (remark, question) = shlex.quote(self.output), self.advice()
        print(f"The release is in {self.output}. {remark}:")
        print(f"  beam-dp describe {directory}")
        print(f"  beam-dp answer {directory} {question}")


JobT = TypeVar("JobT", bound=Job)


@dataclass(frozen=True)
class Program(Generic[JobT]):
    """A program: its module, flags and description; ``make_job`` turns typed flags into a job."""

    name: str
    flags: Sequence[Flag]
    description: str | None
    make_job: Callable[[dict[str, str], dict[str, Any]], JobT]

    def parse_arguments(self, argv: Sequence[str]) -> JobT:
        """Returns the job that a command line describes; does not read records."""
        given, beam_flags = flags.parse(
            self.flags, argv, program=self.name, description=self.description
        )
        return self.read_job(given, beam_flags)

    def read_job(self, given: dict[str, str], beam_flags: Sequence[str] = ()) -> JobT:
        """Returns the job for the flags in ``given``, which includes defaults."""
        check_together(given, *PAIRS.items())
        shared = {
            "input": given["input"],
            "input_format": given.get("input_format"),
            "ledger": read_ledger(given),
            "dataset_id": given.get("dataset_id", ""),
            "origin": read_origin(given),
            "output": given["output"],
            "validate_only": "validate_only" in given,
            "as_json": "json" in given,
            "beam_flags": tuple(beam_flags),
        }
        return self.make_job(given, shared)

    def main(
        self,
        argv: Sequence[str] | None = None,
        parsed: tuple[dict[str, str], list[str]] | None = None,
        preface: str = "",
    ) -> int:
        """Runs the program and returns its exit code, like ``run_main``."""
        return run_main(self.name, self.flags, self.description, self._run, argv, parsed, preface)

    def _run(self, given: dict[str, str], beam_flags: Sequence[str], progress: Progress) -> int:
        job = self.read_job(given, beam_flags)
        if not job.validate_only:
            return job.run(progress)
        build(job.last_run, job.pipeline())
        job.preview()
        progress.tell_warnings()
        return 0


def build(job: Job, pipeline: beam.Pipeline, token: Token | None = None) -> None:
    """Adds a job to a pipeline; raises errors that only building the pipeline reveals."""
    job.add(pipeline | "Read" >> job.source(), token)


def other_than(release: Release, identity: Mapping[str, Any], token: Token | None) -> str | None:
    """Returns the reason if the output must contain another job's release, otherwise None.

    A late worker of an earlier job, or a job started at the same time, may have written to the
    output first. Then the draw of the other job was committed, and the draw of this job was
    discarded. With a ledger, the card names the entry that paid, which belongs to a single job.
    Without a ledger, the guarantees on cards are compared. Two runs of an identical job can't be
    distinguished, except for ``release_projection``, where every run draws a new hash key.
    """
    card = {**(release.read_from or release.card), **release.public_keys()}
    # A card of answers names the entry next to the plan; other cards name the entry among the
    # parameters.
    paid_by = {**card, **card.get("parameters", {})}.get("ledger_release")
    if paid_by != (None if token is None else token.release_id):
        return f"{paid_by or 'no ledger'} paid for it"
    return difference(card, json.loads(json.dumps(identity)))


def difference(value: Any, expected: Any, name: str = "") -> str | None:
    """Returns a description of the first expected field that differs; None if all are equal.

    A card has more fields than are expected, but its domain and its job have no others.
    """
    if isinstance(value, Mapping) and isinstance(expected, dict):
        for key in {**expected, **value} if name.startswith(_WHOLE) else expected:
            reason = difference(value.get(key), expected.get(key), f"{name}.{key}" if name else key)
            if reason is not None:
                return reason
        return None
    if value == expected:
        return None
    return f"{name} is {shown(value)} there, and {shown(expected)} in this job"


_WHOLE = ("domain", "flags")
_SHOWN_WARNINGS = 3
# A deviation of more standard errors is hardly due to chance.
_STANDARD_ERRORS = 3


def read_expected(given: dict[str, str], num_records: NumRecords) -> int | None:
    """Returns the number of records that the user expects; None without this flag."""
    name = EXPECT_RECORDS.name
    if (text := given.get(name)) is None:
        return None
    if num_records != "noisy":
        condition = "needs --num_records noisy: a public number is released as it is"
        raise InputError(name, text, condition)
    return integer(name, text)


def warning_of_number(release: Release, expected: int | None) -> str | None:
    """Returns a warning if the noisy number of records is unexpected, otherwise None."""
    noisy = release.noisy_number()
    if noisy is None:
        return None
    number, error = noisy
    wrong = []
    # A noisy number of 0 or less is released as 1.
    if number <= max(_STANDARD_ERRORS * error, 1):
        wrong.append(f"within {_STANDARD_ERRORS} standard errors of 0")
    if expected is not None and not abs(number - expected) <= _STANDARD_ERRORS * error:
        side = "above" if number > expected else "below"
        wrong.append(
            f"more than {_STANDARD_ERRORS} standard errors {side}"
            f" --{EXPECT_RECORDS.name} {expected:,}"
        )
    if not wrong:
        return None
    sentence = (
        f"the noisy number of records is {number:,.0f} (standard error {error:,.3g}):"
        f" {' and '.join(wrong)}"
    )
    if expected is not None and number - expected > _STANDARD_ERRORS * error:
        return f"{sentence}; check which files --input matches: some records may be read twice"
    if getattr(release, "left_out", None) is not None:
        advice = "`beam-dp describe` estimates how many were, and because of which attribute"
    else:
        advice = (
            "test the domain on public or made-up rows with `beam-dp check-domain"
            " --domain D --sample FILE`; another release with --count_left_out counts these"
            " records, which costs budget"
        )
    lost = "outside the domain"
    if release.guarantee.privacy_unit != "record":
        lost += ", without a unit or beyond --max_records_per_unit"
    if release.not_counted():
        lost += f", or {release.not_counted()}"
    return f"{sentence}; many records may have been left out: {lost}; {advice}"


def marginals_error(plan: MarginalsPlan) -> str:
    """Returns a short text about the expected error of a table of marginals."""
    if isinstance(plan, MeasureAllPlan):
        error = f"{short(plan.parameters.predicted_cell_error)} records"
        return f"{error} expected in a cell (root mean square), before the fit"
    return "depends on the data; the card will state it where it is known"


def number_text(num_records: NumRecords) -> str:
    """Returns a short text about the number of records: public, or private and noisy."""
    if num_records == "noisy":
        return "a private number: the budget pays for a noisy count"
    return f"{num_records:,}, which is public"


def bound_text(bound: float, failure_probability: float) -> str:
    """Returns a short text about the bound on the errors of all answers."""
    return f"{surely(failure_probability)}, all within {short(bound)} records"


def _cost(ledger: Mapping[str, Any] | None) -> str:
    """Returns a text that names the budget that pays, and the epsilon left in it."""
    if ledger is None:
        return "no ledger: releases from this data are not added up"
    total = ledger["budget"]
    text = f"{ledger['dataset_id']}: epsilon {total['epsilon']:g}, delta {total['delta']:g}"
    if "remaining_epsilon" in ledger:
        left = down_to_digits(ledger["remaining_epsilon"], 4)
        text += f"; before this release, epsilon {left:g} is left for a release of this kind"
    return text
