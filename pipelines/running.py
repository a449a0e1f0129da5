"""The run of a checked job: from the submission to the exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import GoogleCloudOptions, StandardOptions
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import PipelineRunner

from beam_dp.errors import InputError
from beam_dp.flags.flag import Flag, FlagError
from beam_dp.privacy.ledger.entries import Token
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.privacy.ledger.url import LedgerError
from beam_dp.releases.leftovers import finish_writing

from . import flags
from .empty_pipeline import LOCAL_RUNNER
from .progress import Progress, early_failure, failure, is_working
from .stopping import Stopped, StopSignals, cancel, cancelling, silence_beam


def run_main(
    own_flags: Sequence[Flag],
    argv: Sequence[str] | None,
    run: Callable[[Sequence[str], Progress], int],
) -> int:
    """Runs a program, and prints one line where an argument is refused.

    Args:
        own_flags: of the program; Beam's are not among them.
        argv: the command line, without the program's name; None for that of this process.
        run: does what the command line says, and returns the exit code.

    Returns:
        The exit code: 0, 1 if the job failed, 2 for a bad argument, 128 and its number for a
        signal.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        progress = Progress()
        with StopSignals(), progress.hearing_warnings():
            return run(given, progress)
    except (FlagError, InputError) as error:
        print(flags.one_line(error, own_flags), file=sys.stderr)
        return flags.EXIT_BAD_INPUT
    except (ImportError, OSError) as error:
        # Of the program itself: what a job raises ended in ``run_pipeline``.
        fault = early_failure(error, flags.typed(given))
        if fault is None:
            raise
        print(f"error: {fault}", file=sys.stderr)
        return flags.EXIT_BAD_INPUT
    except Stopped as stopped:
        print(f"error: stopped by {stopped.signal.name}", file=sys.stderr)
        return stopped.exit_code


def run_pipeline(
    pipeline: beam.Pipeline,
    progress: Progress,
    outputs: Sequence[str],
    alive: Callable[[], str] = is_working,
    is_over: Callable[[], bool] | None = None,
) -> bool:
    """Runs a pipeline to its end; returns whether it succeeded, and says in a line why not.

    However it ends, drafts that killed workers left in the outputs are removed: they are private.

    Args:
        pipeline: that is run.
        progress: where lines are said.
        outputs: the directories that the job writes to.
        alive: what is said every 30 s.
        is_over: whether all is released. The job has succeeded then, however it ends; and it is
            cancelled if it does not end soon: engines keep streams running.

    Raises:
        Stopped: a signal came. The runner was asked to cancel the job.
    """
    failed: str | None = "stopped"
    with StopSignals() as signals:
        try:
            failed = _run_to_end(pipeline, progress, signals, alive, is_over or _never)
        finally:
            signals.hold()
            if signals.received is None and failed is not None:
                print(f"error: {failed}", file=sys.stderr)
            for output in outputs:
                _remove_drafts(output, is_failure=failed is not None)
    if signals.received is not None:
        raise Stopped(signals.received)
    return failed is None


def _never() -> bool:
    return False


def _run_to_end(
    pipeline: beam.Pipeline,
    progress: Progress,
    signals: StopSignals,
    alive: Callable[[], str],
    is_over: Callable[[], bool],
) -> str | None:
    """Returns why the job failed, or was stopped, if it was; cancels it in that case."""
    is_local = type(pipeline.runner).__name__ in (LOCAL_RUNNER, *StandardOptions.LOCAL_RUNNERS)
    result, is_submitting = None, _only_submits(pipeline.runner)
    try:
        with progress.listening(silence_beam=is_local, alive=alive):
            result = pipeline.run()
            is_submitting = False
            signals.install()  # Beam's job server would end before the job could be cancelled.
            with cancelling(result, pipeline.options, is_over):
                result.wait_until_finish()
    except Exception as error:
        if not is_over():
            return _why(error, pipeline) if is_submitting else failure(error)
    except Stopped as stopped:
        signals.hold()
        silence_beam()
        if result is not None:
            cancel(result, pipeline.options)
        signals.pass_on()
        return stopped.signal.name
    if is_over():
        silence_beam()
    return None


def _only_submits(runner: PipelineRunner) -> bool:
    """Returns whether it is one of Beam's that hand a job over in ``run``, and see no record."""
    is_known = isinstance(runner, PortableRunner) or type(runner).__name__ == "DataflowRunner"
    return is_known and type(runner).__module__.startswith("apache_beam.")


def _why(error: Exception, pipeline: beam.Pipeline) -> str:
    """Returns one line about a job that was not submitted."""
    fault = early_failure(error, pipeline.options.get_all_options(drop_default=True))
    return failure(error) if fault is None else f"the job was not submitted: {fault}"


def _remove_drafts(output: str, *, is_failure: bool) -> None:
    """Removes what writers left, and warns of what could not be removed or is there after all."""
    try:
        is_complete = finish_writing(output)
    except OSError as error:
        is_complete = False
        print(
            f"warning: --output: {output!r} may hold drafts, .draft-*, which are private and could"
            f" not be removed: {error.strerror}",
            file=sys.stderr,
        )
    if is_failure and is_complete:
        print(
            f"warning: {output!r} holds a complete release all the same, which may be used for what"
            " its card says; no other job can write there",
            file=sys.stderr,
        )


def is_launched(pipeline: beam.Pipeline) -> bool:
    """Returns whether the launcher of a Dataflow Flex Template runs this program."""
    return pipeline.options.view_as(GoogleCloudOptions).template_location is not None


def stage_pipeline(pipeline: beam.Pipeline, progress: Progress) -> int:
    """Stages a pipeline for the launcher, which starts the job once this program ends.

    Returns:
        The exit code.
    """
    try:
        pipeline.run()
    except Exception as error:
        reason = _why(error, pipeline) if _only_submits(pipeline.runner) else failure(error)
        print(f"error: {reason}", file=sys.stderr)
        return flags.EXIT_JOB_FAILED
    progress.say("staged: the launcher starts the job; a ledger keeps it as spent")
    return 0


def mark_released(ledger: Ledger, token: Token, draw_id: str) -> None:
    """Marks a release that is complete; a ledger that has gone by now changes no budget."""
    try:
        ledger.mark_released(token, draw_id)
    except LedgerError as error:
        print(f"warning: {token.release_id} stays marked as spent: {error}", file=sys.stderr)
