"""Progress lines on a terminal while a job runs.

Shows only public quantities, which workers log to `beam_dp.progress`. Hides all other output of a
local job, because Beam's messages and tracebacks may quote records.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich import progress as rich_progress
from rich.console import Console

from beam_dp.errors import NOTHING_KEPT, InputError, ReadError, SetupError, public_fault
from beam_dp.privacy.guarantee import PrivacyWarning

PROGRESS_LOGGER = "beam_dp.progress"
NUM_LINES = 10
# The time until the first line without news, and the longest time between such lines.
SECONDS_BEFORE_TICK, SECONDS_BETWEEN_TICKS = 5.0, 30.0
# Our exceptions, whose messages contain only public parameters and file names.
PUBLIC_ERRORS = (InputError, ReadError, SetupError)
# The pattern of counts in progress lines of long steps.
_COUNTS = re.compile(r": (\d+) of (\d+)$")
# The last line of a Python traceback that an engine quotes in its own error.
_SENT_BACK = re.compile(
    r"^beam_dp\.[a-z_.]*\.(?:InputError|UnreadableError|ReadError|SetupError): (.*)$", re.MULTILINE
)


def is_working() -> str:
    """Returns the progress line of a running job that does not report counts."""
    return "working"


class WorkerPrints:
    """Silences Beam's workers in this process, which print tracebacks that quote records.

    The workers bypass logging with `print`. Jobs may overlap, so the last job to end restores the
    workers' output.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_jobs = 0
        self._before: Any = None

    def silence(self) -> None:
        """Silences the workers; each call needs a matching `restore`."""
        from apache_beam.runners.worker import sdk_worker

        with self._lock:
            if not self._num_jobs:
                self._worker = vars(sdk_worker)
                self._before = self._worker.get("print", print)
                self._worker["print"] = lambda *_, **__: None
            self._num_jobs += 1

    def restore(self) -> None:
        """Lets the workers print again if no other job is running."""
        with self._lock:
            self._num_jobs -= 1
            if not self._num_jobs:
                self._worker["print"] = self._before


worker_prints = WorkerPrints()


class Progress:
    """Prints lines to standard error, prefixed with the seconds since the start."""

    def __init__(self, preface: str = "") -> None:
        self._start = time.monotonic()
        self._preface = preface
        self._step = ""  # the step that a worker has begun
        self._began = 0.0  # when, by the monotonic clock
        self._heard: dict[str, bool] = {}  # our warnings, each with whether it was printed
        self._show: Callable[[str], None] = self.say  # what is done with the line of a tick

    @contextmanager
    def hearing_warnings(self) -> Iterator[None]:
        """Keeps our warnings until ``tell_warnings``, so a refused job prints only its error."""

        def show(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
            if issubclass(category, PrivacyWarning):
                self._heard.setdefault(str(message), False)
            else:
                show_others(message, category, *rest, **named)

        with warnings.catch_warnings():
            show_others = warnings.showwarning
            warnings.showwarning = show
            yield

    def tell_warnings(self) -> None:
        """Prints each warning once, even if a job is built twice; first the preface."""
        if self._preface:
            print(self._preface, file=sys.stderr)
            self._preface = ""
        for text, is_printed in self._heard.items():
            if not is_printed:
                print(f"warning: {text}", file=sys.stderr)
        self._heard = dict.fromkeys(self._heard, True)

    def hear(self, text: str) -> None:
        """Remembers the step that a worker reports, for the lines that ``_tick`` prints."""
        step = text.partition(":")[0]
        if step != self._step or not _COUNTS.search(text):
            self._step, self._began = step, time.monotonic()

    def say(self, text: str) -> None:
        """Prints one line."""
        elapsed = time.monotonic() - self._start
        print(f"[{elapsed:7.1f} s] {text}", file=sys.stderr, flush=True)

    @contextmanager
    def listening(
        self, *, silence_beam: bool, alive: Callable[[], str] = is_working
    ) -> Iterator[None]:
        """Shows the progress of workers in this process; hides Beam's messages in local jobs."""
        from beam_dp.transforms.job_page import READ, WRITTEN

        handler = _Handler(self)
        options_logger = logging.getLogger("apache_beam.options.pipeline_options")
        logger, beam_logger = logging.getLogger(PROGRESS_LOGGER), logging.getLogger("apache_beam")
        before = logger.level, logger.propagate, beam_logger.level, threading.excepthook
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        # Flags that Beam can't parse were refused earlier, or belong to a job server.
        options_logger.addFilter(nothing)
        if silence_beam:
            beam_logger.setLevel(logging.CRITICAL + 1)
            threading.excepthook = lambda _: None
            # Messages of a job server are logged to the root logger.
            logging.getLogger().addFilter(nothing)
        worker_prints.silence()
        READ.clear()
        WRITTEN.clear()
        done = threading.Event()
        ticker = threading.Thread(target=self._tick, args=(done, alive), daemon=True)
        try:
            with self._living():
                ticker.start()
                try:
                    yield
                finally:
                    done.set()
                    ticker.join()
        finally:
            worker_prints.restore()
            logger.removeHandler(handler)
            logger.setLevel(before[0])
            logger.propagate = before[1]
            beam_logger.setLevel(before[2])
            threading.excepthook = before[3]
            logging.getLogger().removeFilter(nothing)
            options_logger.removeFilter(nothing)

    def _tick(self, done: threading.Event, alive: Callable[[], str]) -> None:
        from beam_dp.transforms.job_page import READ, WRITTEN

        seconds = min(SECONDS_BEFORE_TICK, SECONDS_BETWEEN_TICKS)
        while not done.wait(seconds):
            seconds = min(2 * seconds, SECONDS_BETWEEN_TICKS)
            share = WRITTEN.text()
            if not share and self._step:
                # The progress of a step may depend on a draw that is never released.
                share = f"{self._step} for {time.monotonic() - self._began:.0f} s"
            share = share or READ.text()
            self._show(f"{alive()}: {share}" if share and alive is is_working else alive())

    @contextmanager
    def _living(self) -> Iterator[None]:
        """Keeps the line of the last tick at the bottom of a terminal, next to a running clock.

        Nothing but the clock moves between ticks. A bar that followed the work would show how long
        each part of it takes, which may depend on records: more than the time of the whole.
        """
        console = Console(stderr=True)
        # Jupyter gives its commands a terminal, but cannot write over a line.
        if not sys.stderr.isatty() or console.is_dumb_terminal or "JPY_PARENT_PID" in os.environ:
            yield
            return
        with rich_progress.Progress(
            rich_progress.TimeElapsedColumn(),
            rich_progress.TextColumn("{task.description}", markup=False),
            console=console,
            refresh_per_second=1,
            transient=True,
            redirect_stdout=False,
        ) as live:
            task = live.add_task(is_working(), total=None)
            self._show = lambda words: live.update(task, description=words)
            try:
                yield
            finally:
                self._show = self.say


def nothing(_: logging.LogRecord) -> bool:
    """Removes every line of a logger."""
    return False


class _Handler(logging.Handler):
    """Shows about ten lines per step. Public counts, not times, decide which lines are shown."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self._progress.hear(text)
        counts = _COUNTS.search(text)
        if counts:
            done, total = int(counts[1]), max(int(counts[2]), 1)
            if done > 1 and done * NUM_LINES // total == (done - 1) * NUM_LINES // total:
                return
        self._progress.say(text)


def failure(error: Exception) -> str:
    """Returns one line about a failed job, without text that may quote a record.

    Our own errors are shown in full, even if an engine quotes them. For other errors, only the type
    and the place in our code are shown, which is enough for a bug report.
    """
    sent_back = _SENT_BACK.search(str(error))
    if sent_back or isinstance(error, PUBLIC_ERRORS):
        text = sent_back[1] if sent_back else str(error)
        # Beam appends the failed step of the graph to the first argument of the exception.
        return " ".join(re.sub(r" \[while running '[^']*'\]", "", text).split())
    places = [
        f"{frame.filename.rpartition('/beam_dp/')[2]}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if "/beam_dp/" in frame.filename
    ]
    place = f" at beam_dp/{places[-1]}" if places else ""
    return (
        f"the job failed with {type(error).__name__}{place};"
        f" its message is withheld, because it may quote records, and {NOTHING_KEPT}"
    )


def early_failure(error: Exception, typed: Mapping[str, object]) -> str | None:
    """Returns one line about a missing module or a bad path, found before any record was read.

    Returns None for any other error, and for a path that the user did not type.
    """
    fault = public_fault(error)
    if fault is None or not isinstance(error, OSError):
        return fault
    for name, value in typed.items():
        if isinstance(value, str) and value and _is_at(error.filename, value):
            return f"--{name}: {value!r}: {fault}"
    return None


def _is_at(path: object, typed: str) -> bool:
    """Returns whether a path is the typed path or below it."""
    if not isinstance(path, str):
        return False
    path, typed = os.path.abspath(path), os.path.abspath(typed)
    return path == typed or path.startswith(os.path.join(typed, ""))
