"""What every program does: parse, plan once, build, pay, run, and say how it ended.

A program is its flags, and what makes a ``Job`` of them; a job says what is released, and how. All
that can be refused is refused before the budget is spent, and no noise can be drawn before. A job
that fails has spent it all the same: its noise may have been seen.
"""

from __future__ import annotations

import shlex
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import apache_beam as beam

from beam_dp.cli.programs import command_of
from beam_dp.errors import InputError
from beam_dp.flags.flag import Flag
from beam_dp.flags.shared import read_guarantee
from beam_dp.mechanisms.contract import Plan
from beam_dp.mechanisms.online.private_mw import Payment
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger.entries import Token
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.privacy.ledger.origin import Origin
from beam_dp.releases.files.probe import probe_output
from beam_dp.releases.kinds import read_release
from beam_dp.releases.release import Release
from beam_dp.transforms import ReadRecords, WriteRelease

from . import flags
from .common import make_pipeline, read_ledger, read_origin
from .own_release import is_own
from .preview import check_json_flag, print_json, print_preview
from .progress import Progress
from .record_number import warning_of_number
from .running import is_launched, mark_released, run_main, run_pipeline, stage_pipeline
from .saved_state import keep_state, private_folder


@dataclass(frozen=True, kw_only=True)
class Job(ABC):
    """What the flags of a program say, checked one by one, and the plan that was made of it once.

    Args:
        input: a glob of files; empty where records come from elsewhere.
        input_format: of the files, where it was given.
        guarantee: of all that is released.
        plan: what will be done.
        ledger: that pays, if one does.
        dataset_id: from whose budget.
        origin: what the ledger is told of who releases it, and why.
        output: where the release is written.
        validate_only: whether nothing is run.
        as_json: whether what is shown then is for machines.
        beam_flags: Beam's own.
        state: where the run is saved, if it is.
        payment: of the earlier run that this one goes on from, if it was paid for.
    """

    done: ClassVar[str] = "released"

    input: str
    input_format: str | None
    guarantee: Guarantee
    plan: Plan
    ledger: Ledger | None
    dataset_id: str
    origin: Origin
    output: str
    validate_only: bool
    as_json: bool
    beam_flags: tuple[str, ...]
    state: Path | None = None
    payment: Payment | None = None

    @abstractmethod
    def add(
        self,
        records: beam.PCollection[Any],
        token: Token | None = None,
        save_in: Path | None = None,
    ) -> beam.PCollection[str]:
        """Adds the release of some records, and its writing; returns the directory.

        Args:
            records: of any kind that ``ReleaseSyntheticDatabase`` takes.
            token: of the ledger that paid for it; the card then names the entry.
            save_in: the private folder for states, if the run is saved; None for a pipeline that
                is only checked and not run.

        Raises:
            InputError: the records, the output or a combination of parameters is refused.
        """

    @abstractmethod
    def promised(self) -> dict[str, Any]:
        """Returns the part of the card that tells two jobs apart, whatever the records are.

        What is left out is told apart for all jobs alike.
        """

    @abstractmethod
    def card(self) -> dict[str, Any]:
        """Returns the part of the card that is known before any record is read.

        Without what is left out, which is said for all jobs alike.
        """

    @abstractmethod
    def entry(self) -> dict[str, Any]:
        """Returns the parameters that the ledger's entry states, without what is left out."""

    @abstractmethod
    def headline(self) -> str:
        """Returns what is done, in half a line."""

    @abstractmethod
    def facts(self) -> dict[str, str]:
        """Returns what a page for people says of this kind of release, with its errors."""

    @abstractmethod
    def tell(self, release: Release) -> None:
        """Prints where the release is, and what can be done with it."""

    def warnings(self) -> list[str]:
        """Returns what to tell before anything is paid."""
        return []


@dataclass(frozen=True, kw_only=True)
class ReleaseJob(Job):
    """A job of one transform, which makes a release: all but answers.

    Args: as of ``Job``, and
        expect_records: about how many records there should be, if that was said.
    """

    expect_records: int | None = None

    @abstractmethod
    def release(self, token: Token | None) -> beam.PTransform:
        """Returns the transform, paid for by a token, of the plan."""

    def add(
        self,
        records: beam.PCollection[Any],
        token: Token | None = None,
        save_in: Path | None = None,
    ) -> beam.PCollection[str]:
        """Adds the release of some records, and its writing."""
        written = "Write" >> WriteRelease(self.output)
        return records | "Release" >> self.release(token) | written

    @abstractmethod
    def advice(self) -> tuple[str, str]:
        """Returns what to say of the release, and what to give ``beam-dp answer`` to ask it."""

    def tell(self, release: Release) -> None:
        """Prints where the release is, and what can be done with it."""
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
    """A program.

    Args:
        name: of its module.
        flags: its own; Beam's are not among them.
        description: whose first line ``--help`` shows.
        make_job: is given the texts of the flags that were given or have a default, and the fields
            that all jobs have but the plan; makes the plan, and the job.
    """

    name: str
    flags: Sequence[Flag]
    description: str | None
    make_job: Callable[[dict[str, str], dict[str, Any]], JobT]

    def parse_arguments(self, argv: Sequence[str]) -> JobT:
        """Returns the job that a command line describes.

        Args:
            argv: the command line, without the program's name.

        Returns:
            The job; each of its fields is valid, and no record has been read.

        Raises:
            FlagError: a flag is unknown, missing, repeated or outside its choices.
            InputError: a value, or a combination of them, is refused.
        """
        given, beam_flags = flags.parse(
            self.flags, argv, program=command_of(self.name), description=self.description or ""
        )
        return self.read_job(given, beam_flags)

    def read_job(self, given: dict[str, str], beam_flags: Sequence[str] = ()) -> JobT:
        """Returns the job that flags describe.

        Args:
            given: the texts of the flags that were given or have a default.
            beam_flags: Beam's own.

        Raises:
            FlagError: a flag that others need is missing.
            InputError: a value, or a combination of them, is refused.
        """
        check_json_flag(given)
        shared = {
            "input": given["input"],
            "input_format": given.get("input_format"),
            "guarantee": read_guarantee(given),
            "ledger": read_ledger(given),
            "dataset_id": given.get("dataset_id", ""),
            "origin": read_origin(given),
            "output": given["output"],
            "validate_only": "validate_only" in given,
            "as_json": "json" in given,
            "beam_flags": tuple(beam_flags),
        }
        return self.make_job(given, shared)

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Runs the program and returns its exit code: 0, 1 if the job failed, 2 for a bad argument.

        Args:
            argv: the command line, without the program's name; that of the process by default.
        """
        return run_main(self.flags, argv, self._main)

    def _main(self, argv: Sequence[str], progress: Progress) -> int:
        job = self.parse_arguments(argv)
        pipeline = make_pipeline(job.beam_flags, job.output)
        build(job, pipeline)
        if job.validate_only:
            preview(job)
            progress.tell_warnings()
            return 0
        return run(job, pipeline, progress)


def build(
    job: Job, pipeline: beam.Pipeline, token: Token | None = None, save_in: Path | None = None
) -> None:
    """Adds a job to a pipeline. Every refusal that planning left happens here, before any record.

    Raises:
        InputError: the input, the output or a combination of parameters is refused.
    """
    records = pipeline | "Read" >> ReadRecords(job.input, file_format=job.input_format)
    job.add(records, token, save_in)


def public_card(job: Job) -> dict[str, Any]:
    """Returns the part of the card that is known before any record is read.

    With a ledger also what the release would cost and what is left; nothing is spent.

    Raises:
        InputError: if the ledger would refuse the release.
    """
    card = job.card() | _left_out(job.plan)
    if job.payment is not None:
        card["resumes"] = {
            "ledger_release": job.payment.token.release_id,
            "ledger_state": job.payment.state_number,
        }
    elif job.ledger is not None:
        loss = job.plan.loss
        job.ledger.check(job.dataset_id, job.guarantee, loss)
        account = job.ledger.account(job.dataset_id)
        slack = {} if loss.slack is None else {"remaining_slack": account.largest_slack(loss)}
        card["ledger"] = {
            "dataset_id": job.dataset_id,
            "budget": {"epsilon": account.epsilon, "delta": account.delta},
            "loss": loss.to_json(),
            "remaining_epsilon": account.largest_epsilon(loss.kind, job.guarantee.delta),
            **slack,
        }
    return card


def preview(job: Job) -> None:
    """Prints what a job would release; nothing is read, paid or written.

    Raises:
        InputError: if the ledger would refuse the release.
    """
    card = public_card(job)
    if job.as_json:
        print_json(card)
        return
    places = {"input": job.input, "output": job.output}
    ledger = card.get("ledger")
    print_preview(job.headline(), job.plan, job.facts(), places, ledger, job.origin, job.warnings())


def pay(job: Job) -> Token | None:
    """Pays for a release; without a ledger nothing.

    Raises:
        InputError: if the ledger refuses; then nothing was spent.
    """
    if job.ledger is None:
        return None
    plan, parameters = job.plan, job.entry() | _left_out(job.plan)
    return job.ledger.spend(
        job.dataset_id, job.guarantee, plan.loss, plan.mechanism, parameters, job.origin
    )


def _left_out(plan: Plan) -> dict[str, Any]:
    """Returns what a card says of a count of what is left out; nothing where there is none."""
    return {} if plan.left_out is None else {"left_out": plan.left_out.to_json()}


def _promised(job: Job) -> dict[str, Any]:
    """Returns all of the card that tells two jobs apart.

    Not errors: they are made of logarithms, whose last digits are not the same on every machine.
    """
    left_out = {
        key: {name: part[name] for name in ("noise", "budget")}
        for key, part in _left_out(job.plan).items()
    }
    return job.promised() | left_out


def run(job: Job, pipeline: beam.Pipeline, progress: Progress) -> int:
    """Pays for a release, runs the pipeline that makes it, and returns the exit code.

    Raises:
        InputError: if the output, the place of the state or the ledger refuses; then nothing was
            spent or run.
    """
    probe_output(job.output)
    if job.ledger is not None and job.payment is None:
        job.ledger.check(job.dataset_id, job.guarantee, job.plan.loss)
    with private_folder(job.state) as save_in:
        progress.tell_warnings()
        for warning in job.warnings():
            print(f"warning: {warning}", file=sys.stderr)
        if job.payment is not None:
            token: Token | None = job.payment.token
            progress.say(
                f"resumes: state {job.payment.state_number} of {job.payment.token.release_id}"
            )
        elif (token := pay(job)) is not None:
            progress.say(f"spent: {token.release_id} in the ledger")
        if token is not None or save_in is not None:
            # The same job once more, which now knows the ledger's entry and where to save.
            pipeline = make_pipeline(job.beam_flags, job.output)
            build(job, pipeline, token, save_in)
        progress.say(f"{job.headline()}; runner {type(pipeline.runner).__name__}")
        if is_launched(pipeline):
            return stage_pipeline(pipeline, progress)
        if not run_pipeline(pipeline, progress, [job.output]):
            return flags.EXIT_JOB_FAILED
        try:
            # Says why not, where the workers do not share this directory.
            release = read_release(job.output)
        except InputError as error:
            print(f"error: {error}; every worker must see --output", file=sys.stderr)
            return flags.EXIT_JOB_FAILED
        if not is_own(release, job.output, _promised(job), token):
            return flags.EXIT_JOB_FAILED
        progress.say(job.done)
        # A run that goes on is one draw with what it said before, which the ledger knows.
        if job.ledger is not None and token is not None and job.payment is None:
            mark_released(job.ledger, token, release.draw_id)
        is_saved = True
        if save_in is not None and job.state is not None:
            is_saved = keep_state(save_in, release.draw_id, job.state)
    job.tell(release)
    return 0 if is_saved else flags.EXIT_JOB_FAILED
