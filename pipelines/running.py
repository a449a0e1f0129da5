"""Runs a checked job until it ends or a signal stops it."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from beam_dp.errors import InputError
from beam_dp.flags.command_line import in_words_of_flags
from beam_dp.flags.flag import Flag, FlagError
from beam_dp.flags.output import code_of_lost, lasting_output
from beam_dp.privacy.ledger.entries import LedgerError, Token
from beam_dp.releases.kinds import finish_writing

from . import flags
from .beam_flags import LOCAL_RUNNER
from .job_servers import cancel_job
from .progress import Progress, early_failure, failure, is_working, worker_prints

if TYPE_CHECKING:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.runner import PipelineResult, PipelineRunner

    from beam_dp.privacy.ledger.ledger import Ledger


def run_main(
    name: str,
    own_flags: Sequence[Flag],
    description: str | None,
    run: Callable[[dict[str, str], list[str], Progress], int],
    argv: Sequence[str] | None = None,
    parsed: tuple[dict[str, str], list[str]] | None = None,
    preface: str = "",
) -> int:
    """Runs a program; prints one line if an argument is invalid; returns the exit code.

    That is 0, 1 if the job failed, 2 for a bad argument, or 128 + N for signal N. ``parsed`` is the
    result of ``parse_own``, if `beam-dp` has already parsed the command line; ``preface`` is
    printed when all checks are done. No line that can't be printed changes this code, unless
    printing is all that the program was asked to do.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    with lasting_output() as output:
        try:
            progress = Progress(preface)
            with StopSignals(), progress.hearing_warnings():
                texts, beam_flags = flags.parse(
                    own_flags, given, program=name, description=description, parsed=parsed
                )
                code = run(texts, beam_flags, progress)
        except (FlagError, InputError) as error:
            print(f"error: {in_words_of_flags(error, own_flags)}", file=sys.stderr)
            return flags.EXIT_BAD_INPUT
        except (ImportError, OSError) as error:
            # ``run_pipeline`` handles the errors of a job: these are errors of the program.
            fault = early_failure(error, flags.typed(given))
            if fault is None:
                raise
            print(f"error: {fault}", file=sys.stderr)
            return flags.EXIT_BAD_INPUT
        except Stopped as stopped:
            print(f"error: stopped by {stopped.signal.name}", file=sys.stderr)
            return stopped.exit_code
        output.flush()
        only_prints = "--validate_only" in given or all(flag.name != "output" for flag in own_flags)
        return code if code or not only_prints else code_of_lost(output)


def run_pipeline(
    pipeline: beam.Pipeline,
    progress: Progress,
    outputs: Sequence[str],
    alive: Callable[[], str] = is_working,
    is_over: Callable[[], bool] = lambda: False,
) -> bool:
    """Runs a pipeline to its end; returns whether it succeeded; prints one line about a failure.

    Always removes the drafts that killed workers left in the outputs, because drafts are private.

    ``alive``: returns the text of the line that is printed every 30 s.
    ``is_over``: returns whether everything is released. If everything is released, the job has
    succeeded; a job that does not end soon is then cancelled, because engines keep streams running.
    """
    failed: str | None = "stopped"
    with StopSignals() as signals:
        try:
            failed = _run_to_end(pipeline, progress, signals, alive, is_over)
        finally:
            signals.hold()
            if signals.received is None and failed is not None:
                print(f"error: {failed}", file=sys.stderr)
            for output in outputs:
                _remove_drafts(output, is_failure=failed is not None)
    if signals.received is not None:
        raise Stopped(signals.received)
    return failed is None


def _run_to_end(
    pipeline: beam.Pipeline,
    progress: Progress,
    signals: StopSignals,
    alive: Callable[[], str],
    is_over: Callable[[], bool],
) -> str | None:
    """Returns the reason if the job failed or was stopped, or None; cancels a stopped job."""
    from apache_beam.options.pipeline_options import StandardOptions

    is_local = type(pipeline.runner).__name__ in (LOCAL_RUNNER, *StandardOptions.LOCAL_RUNNERS)
    result, is_submitting = None, _only_submits(pipeline.runner)
    try:
        with progress.listening(silence_beam=is_local, alive=alive):
            result = pipeline.run()
            is_submitting = False
            signals.install()  # else Beam's job server ends before the job is cancelled
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
    """Returns whether a runner is Beam's and only submits jobs, so that it never reads a record."""
    from apache_beam.runners.portability.portable_runner import PortableRunner

    is_known = isinstance(runner, PortableRunner) or type(runner).__name__ == "DataflowRunner"
    return is_known and type(runner).__module__.startswith("apache_beam.")


def _why(error: Exception, pipeline: beam.Pipeline) -> str:
    """Returns one line about a job that was not submitted."""
    fault = early_failure(error, pipeline.options.get_all_options(drop_default=True))
    return failure(error) if fault is None else f"the job was not submitted: {fault}"


def _remove_drafts(output: str, *, is_failure: bool) -> None:
    """Removes drafts; warns if that fails, or if the release of a failed job is complete."""
    try:
        is_complete = finish_writing(output)
    except OSError as error:
        is_complete = False
        print(
            f"warning: --output: {output!r} may contain drafts, .draft-*, which are private and"
            f" could not be removed: {error.strerror}",
            file=sys.stderr,
        )
    if is_failure and is_complete:
        print(
            f"warning: {output!r} contains a complete release, which may nevertheless be used as"
            " its card states; no other job can write there",
            file=sys.stderr,
        )


def is_launched(pipeline: beam.Pipeline) -> bool:
    """Returns whether the launcher of a Dataflow Flex Template runs this program."""
    from apache_beam.options.pipeline_options import GoogleCloudOptions

    return pipeline.options.view_as(GoogleCloudOptions).template_location is not None


def stage_pipeline(pipeline: beam.Pipeline, progress: Progress) -> int:
    """Stages a pipeline for the launcher, which starts the job once this program ends."""
    try:
        pipeline.run()
    except Exception as error:
        reason = _why(error, pipeline) if _only_submits(pipeline.runner) else failure(error)
        print(f"error: {reason}", file=sys.stderr)
        return flags.EXIT_JOB_FAILED
    progress.say("staged: the launcher starts the job; its ledger entry stays submitted")
    return 0


def mark_submitted(ledger: Ledger | None, token: Token | None) -> bool:
    """Marks a paid job; False if the ledger fails, as ``spent`` says that nothing was drawn."""
    try:
        if ledger is not None and token is not None:
            ledger.mark_submitted(token)
        return True
    except LedgerError as error:
        paid = token and token.release_id
        print(f"error: {paid} was paid, but its job was not submitted: {error}", file=sys.stderr)
        return False


def mark_released(ledger: Ledger, token: Token, draw_id: str) -> None:
    """Marks a complete release; only warns if the ledger fails, because budgets do not change."""
    try:
        ledger.mark_released(token, draw_id)
    except LedgerError as error:
        print(f"warning: {token.release_id} stays marked as submitted: {error}", file=sys.stderr)


SECONDS_TO_CANCEL = 15.0
SECONDS_BETWEEN_LOOKS = 3.0
SECONDS_TO_END = 30.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SECONDS_BETWEEN_STATES = 0.2
_Handler = Callable[..., Any] | int | None


class Stopped(BaseException):
    """A signal asked the program to stop. Like KeyboardInterrupt, this is not an Exception."""

    def __init__(self, signal: signal.Signals) -> None:
        super().__init__(signal)
        self.signal = signal

    @property
    def exit_code(self) -> int:
        """The exit code that shells use: 128 plus the number of the signal."""
        return 128 + self.signal


class StopSignals:
    """Within a ``with`` statement, signals to stop raise ``Stopped`` and are recorded.

    Signals are recorded because a local runner may run workers in this thread, and would treat
    the exception as a failed worker. Outside the main thread, which receives no signals, this class
    does nothing.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._is_held = False
        self._before: dict[signal.Signals, _Handler] = {}
        self._displaced: dict[signal.Signals, Callable[..., Any]] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def install(self) -> None:
        """Installs the handlers; replaces the handlers that Beam installs for its job server."""
        for number, before in self._before.items():
            handler = signal.signal(number, self._receive)
            if callable(handler) and handler not in (before, self._receive):
                self._displaced[number] = handler

    def hold(self) -> None:
        """Stops raising ``Stopped``, so that signals do not interrupt the cleanup."""
        self._is_held = True

    def pass_on(self) -> None:
        """Calls the replaced handlers; Beam's handler stops the job server that Beam started."""
        for number, handler in self._displaced.items():
            with contextlib.suppress(Exception):  # the server may have stopped already
                handler(number, None)

    def _receive(self, number: int, _: FrameType | None) -> None:
        self.received = self.received or signal.Signals(number)
        if not self._is_held:
            raise Stopped(self.received)


def silence_beam() -> None:
    """Silences Beam's threads: workers of a cancelled job would log or raise tracebacks."""
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL + 1)
    threading.excepthook = lambda _: None
    worker_prints.silence()


@contextlib.contextmanager
def cancelling(
    result: PipelineResult, options: PipelineOptions, is_over: Callable[[], bool]
) -> Iterator[None]:
    """While waiting for a job, cancels the job if it keeps running after ``is_over`` is true."""
    left = threading.Event()

    def look() -> None:
        while not left.wait(SECONDS_BETWEEN_LOOKS):
            if is_over():
                if not left.wait(SECONDS_TO_END):
                    cancel(result, options)
                break

    threading.Thread(target=look, daemon=True).start()
    try:
        yield
    finally:
        left.set()


def cancel(result: PipelineResult, options: PipelineOptions) -> None:
    """Asks the runner to cancel a job, and waits at most ``SECONDS_TO_CANCEL`` seconds."""
    from apache_beam.options.pipeline_options import FlinkRunnerOptions
    from apache_beam.runners.runner import PipelineState

    end = time.monotonic() + SECONDS_TO_CANCEL

    def ask() -> None:
        with contextlib.suppress(Exception):  # runners raise different errors
            result.cancel()
        with contextlib.suppress(Exception):  # a cluster may have stopped
            master = options.view_as(FlinkRunnerOptions).flink_master
            cancel_job(master, getattr(result, "_job_id", ""))
        with contextlib.suppress(Exception):
            while not PipelineState.is_terminal(result.state) and time.monotonic() < end:
                time.sleep(_SECONDS_BETWEEN_STATES)

    # Runners set no timeout on these calls.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(SECONDS_TO_CANCEL)
