"""Ctrl-C and SIGTERM: stops the job, removes drafts, prints one line."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from apache_beam.options.pipeline_options import FlinkRunnerOptions, PipelineOptions
from apache_beam.runners.runner import PipelineResult, PipelineState

from .flink import cancel_job
from .progress import worker_prints

SECONDS_TO_CANCEL = 15.0
SECONDS_BETWEEN_LOOKS = 3.0
SECONDS_TO_END = 30.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SECONDS_BETWEEN_STATES = 0.2
_Handler = Callable[..., Any] | int | None


class Stopped(BaseException):
    """A signal asked the program to stop; like KeyboardInterrupt, no Exception."""

    def __init__(self, signal: signal.Signals) -> None:
        super().__init__(signal)
        self.signal = signal

    @property
    def exit_code(self) -> int:
        """As shells have it."""
        return 128 + self.signal


class StopSignals:
    """Within a ``with`` statement signals to stop raise ``Stopped``, and are remembered.

    Remembered, because a local runner runs workers in this thread, and takes what is raised there
    for a failure of theirs. Other threads than the main one have no signals: there it does nothing.
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
        """Listens, also where somebody else has begun to meanwhile: Beam, for its job server."""
        for number, before in self._before.items():
            handler = signal.signal(number, self._receive)
            if callable(handler) and handler not in (before, self._receive):
                self._displaced[number] = handler

    def hold(self) -> None:
        """Raises nothing from now on, so that cleaning up is not interrupted."""
        self._is_held = True

    def pass_on(self) -> None:
        """Tells those who had begun to listen; Beam then stops the job server that it started."""
        for number, handler in self._displaced.items():
            with contextlib.suppress(Exception):  # a server that is gone by now
                handler(number, None)

    def _receive(self, number: int, _: FrameType | None) -> None:
        self.received = self.received or signal.Signals(number)
        if not self._is_held:
            raise Stopped(self.received)


def silence_beam() -> None:
    """Lets no thread of Beam speak until the process ends.

    Workers in this process whose job was cancelled would each log a traceback, or raise one.
    """
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL + 1)
    threading.excepthook = lambda _: None
    worker_prints.silence()


@contextlib.contextmanager
def cancelling(
    result: PipelineResult, options: PipelineOptions, is_over: Callable[[], bool]
) -> Iterator[None]:
    """Cancels a job, while it is waited for, that does not end though it is over by our own word.

    Args:
        result: of the job.
        options: of its pipeline.
        is_over: whether it is; asked every few seconds.
    """
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
    """Asks the runner to cancel a job, and waits until it has, for ``SECONDS_TO_CANCEL`` at most.

    A runner that knows no way to cancel, or is gone, is left alone.

    Args:
        result: of the job.
        options: of its pipeline, whose ``--flink_master`` is asked as well.
    """
    end = time.monotonic() + SECONDS_TO_CANCEL

    def ask() -> None:
        with contextlib.suppress(Exception):  # each runner raises its own
            result.cancel()
        with contextlib.suppress(Exception):  # a cluster may be gone, too
            master = options.view_as(FlinkRunnerOptions).flink_master
            cancel_job(master, getattr(result, "_job_id", ""))
        with contextlib.suppress(Exception):
            while not PipelineState.is_terminal(result.state) and time.monotonic() < end:
                time.sleep(_SECONDS_BETWEEN_STATES)

    # No runner bounds the time of these calls.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(SECONDS_TO_CANCEL)
