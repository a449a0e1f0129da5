"""Progress lines on a terminal while a job runs.

Only public quantities: the workers log them to `beam_dp.progress`, and nothing else that happens
inside a local job is shown, because Beam's own messages and tracebacks may quote records.
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
from dataclasses import dataclass
from typing import Any

from apache_beam.runners.worker import sdk_worker

from beam_dp.errors import NOTHING_KEPT, InputError, public_fault
from beam_dp.privacy.guarantee import PrivacyWarning
from beam_dp.transforms import ReadError, SetupError

PROGRESS_LOGGER = "beam_dp.progress"
NUM_LINES = 10
SECONDS_BETWEEN_TICKS = 30.0
# Exceptions of ours: their texts are made of public parameters and names of files.
PUBLIC_ERRORS = (InputError, ReadError, SetupError)
# What steps that may be long say of themselves.
_USUAL_SECONDS = re.compile(r"^(.+): about (\d+) to (\d+) s$")
_COUNTS = re.compile(r": (\d+) of (\d+)$")
# The last line of a Python traceback, which an engine sends back inside an error of its own.
_SENT_BACK = re.compile(
    r"^beam_dp\.[a-z_.]*\.(?:InputError|ReadError|SetupError): (.*)$", re.MULTILINE
)


def is_working() -> str:
    """Returns the line that says no more than that a job is alive."""
    return "working"


@dataclass(frozen=True)
class Step:
    """A step that a worker has begun, as far as its own public words say.

    ``start``: when it began, on a clock.
    ``usual``: from how much to how much processor time such a step usually takes, in seconds,
    where that was said.
    """

    name: str
    start: float
    spent: float
    usual: tuple[int, int] | None

    @classmethod
    def told_by(cls, text: str, start: float, spent: float) -> Step:
        """Returns the step that a line of progress is about."""
        said = _USUAL_SECONDS.match(text)
        if said is None:
            return cls(text.partition(":")[0], start, spent, None)
        return cls(said[1], start, spent, (int(said[2]), int(said[3])))

    def at(self, now: float, spent: float) -> str:
        """Returns how long it has been going on, and how much longer it may, at the same pace.

        The time that is left is a usual one less the time that was spent, and says nothing of how
        far the step is: that may depend on a draw that is never released.

        Example:
            >>> Step.told_by("fit: about 60 to 240 s", 0.0, 0.0).at(90.0, 90.0)
            'fit for 90 s, at most about 150 s left'
        """
        seconds, busy = now - self.start, spent - self.spent
        text = f"{self.name} for {seconds:.0f} s"
        if self.usual is None:
            return text
        # Where others take their share of a processor, a second of it takes longer.
        pace = max(seconds / busy, 1.0) if busy > 0 else 1.0
        least, most = ((each - busy) * pace for each in self.usual)
        if most <= 0:
            return f"{text}, longer than usual"
        if least <= 0:
            return f"{text}, at most about {most:.0f} s left"
        return f"{text}, about {least:.0f} to {most:.0f} s left"


class WorkerPrints:
    """What Beam's workers in this process print past all loggers: tracebacks, which quote records.

    Silent while any job runs here. Jobs may overlap, so the last one to end restores the print.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_jobs = 0
        self._before: Any = None

    def silence(self) -> None:
        """Silences the workers; each call needs a `restore`."""
        with self._lock:
            if not self._num_jobs:
                self._before = vars(sdk_worker).get("print", print)
                vars(sdk_worker)["print"] = lambda *_, **__: None
            self._num_jobs += 1

    def restore(self) -> None:
        """Lets the workers print again, if no other job runs."""
        with self._lock:
            self._num_jobs -= 1
            if not self._num_jobs:
                vars(sdk_worker)["print"] = self._before


worker_prints = WorkerPrints()


class Progress:
    """Prints lines to standard error, each with the seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._step: Step | None = None
        self._heard: dict[str, bool] = {}  # our warnings, and whether each was printed

    @contextmanager
    def hearing_warnings(self) -> Iterator[None]:
        """Keeps our own warnings until ``tell_warnings``: a job that is refused says only why."""

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
        """Prints what was heard, each warning once, although a job may be built twice."""
        for text, is_printed in self._heard.items():
            if not is_printed:
                print(f"warning: {text}", file=sys.stderr)
        self._heard = dict.fromkeys(self._heard, True)

    def hear(self, text: str) -> None:
        """Remembers the step that a worker's line is about, which ticks then speak of."""
        step = Step.told_by(text, time.monotonic(), time.process_time())
        is_same = self._step is not None and self._step.name == step.name
        # A step that is begun again has an estimate of its own; a count goes on with the old one.
        if not (is_same and _COUNTS.search(text)):
            self._step = step

    def say(self, text: str) -> None:
        """Prints one line."""
        elapsed = time.monotonic() - self._start
        print(f"[{elapsed:7.1f} s] {text}", file=sys.stderr, flush=True)

    @contextmanager
    def listening(
        self, *, silence_beam: bool, alive: Callable[[], str] = is_working
    ) -> Iterator[None]:
        """Shows what workers in this process log as progress, and, locally, nothing of Beam's."""
        handler = _Handler(self)
        options_logger = logging.getLogger("apache_beam.options.pipeline_options")
        logger, beam_logger = logging.getLogger(PROGRESS_LOGGER), logging.getLogger("apache_beam")
        before = logger.level, logger.propagate, beam_logger.level, threading.excepthook
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        # Flags that it can't parse are refused before, or those of a job server.
        options_logger.addFilter(nothing)
        if silence_beam:
            beam_logger.setLevel(logging.CRITICAL + 1)
            threading.excepthook = lambda _: None
            # What a job server tells is logged without a logger's name.
            logging.getLogger().addFilter(nothing)
        worker_prints.silence()
        done = threading.Event()
        ticker = threading.Thread(target=self._tick, args=(done, alive), daemon=True)
        ticker.start()
        try:
            yield
        finally:
            done.set()
            ticker.join()
            worker_prints.restore()
            logger.removeHandler(handler)
            logger.setLevel(before[0])
            logger.propagate = before[1]
            beam_logger.setLevel(before[2])
            threading.excepthook = before[3]
            logging.getLogger().removeFilter(nothing)
            options_logger.removeFilter(nothing)

    def _tick(self, done: threading.Event, alive: Callable[[], str]) -> None:
        while not done.wait(SECONDS_BETWEEN_TICKS):
            step = self._step if alive is is_working else None
            going_on = "" if step is None else f": {step.at(time.monotonic(), time.process_time())}"
            self.say(f"{alive()}{going_on}")


def nothing(_: logging.LogRecord) -> bool:
    """Lets no line of a logger pass."""
    return False


class _Handler(logging.Handler):
    """Shows about ten lines of a step, chosen by its public counts and never by the clock."""

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
    """Returns one line about a job that failed, without a word that may quote a record.

    Our own errors speak for themselves, also those that an engine quotes. Of any other, only its
    type and the place in our code are shown: enough for a bug report.
    """
    sent_back = _SENT_BACK.search(str(error))
    if sent_back or isinstance(error, PUBLIC_ERRORS):
        text = sent_back[1] if sent_back else str(error)
        # Beam adds, to the first argument of the exception, where in the graph it happened.
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
    """Returns one line about an error that came before any record: a module, or a path.

    Returns:
        The line; None for any other error, and for a path that nobody typed.
    """
    fault = public_fault(error)
    if fault is None or not isinstance(error, OSError):
        return fault
    for name, value in typed.items():
        if isinstance(value, str) and value and _is_at(error.filename, value):
            return f"--{name}: {value!r}: {fault}"
    return None


def _is_at(path: object, typed: str) -> bool:
    """Returns whether a path is the one that was typed, or below it."""
    if not isinstance(path, str):
        return False
    path, typed = os.path.abspath(path), os.path.abspath(typed)
    return path == typed or path.startswith(os.path.join(typed, ""))
