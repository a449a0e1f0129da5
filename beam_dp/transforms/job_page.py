"""What the page of a job shows of a release: its promise, and its size once it is committed.

It also shows where records were read and where a release was committed (Beam's lineage). No other
module defines metrics, because a counter at or before the draw could depend on records.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.metrics.metric import Lineage
from apache_beam.transforms.display import DisplayDataItem

from beam_dp.errors import (
    FileError as FileError,
    PrivateStepError as PrivateStepError,
    ReadError as ReadError,
    SetupError as SetupError,
    public_fault,
    withhold_messages as withhold_messages,
)
from beam_dp.mechanisms.contract import Plan
from beam_dp.releases.files.commit import committed_card
from beam_dp.storage.open import store_for

COUNTERS = "beam_dp"  # the namespace of the counters


class ShowsPromise(beam.PTransform):
    """A transform that shows the promise of its ``plan`` as display data and as an annotation.

    Everything shown is public: it is known before any record is read, and is on the card.
    """

    plan: Plan

    def display_data(self) -> dict[str, Any]:
        """Returns the mechanism, the guarantee and the ledger entry that paid."""
        return {
            name: DisplayDataItem(value, label=name.replace("_", " "))
            for name, value in self._promise().items()
        }

    def annotations(self) -> dict[str, Any]:
        """Returns the display data as JSON, under the name of the package."""
        promise = json.dumps(self._promise(), ensure_ascii=False)
        return {**super().annotations(), COUNTERS: promise}

    def _promise(self) -> dict[str, Any]:
        guarantee = self.plan.promised.to_json()
        shown = ("epsilon", "delta", "neighboring", "privacy_unit", "max_records_per_unit")
        promise = {name: guarantee[name] for name in shown if name in guarantee}
        promise = {"mechanism": self.plan.mechanism, **promise}
        # Programs pay after they have built the pipeline, when annotations are already made.
        with contextlib.suppress(RuntimeError):
            promise |= self.plan.payer()
        return promise


def count_committed(directory: str) -> None:
    """Counts the committed release of a directory: files, bytes, and records or answers.

    Beam's lineage gets the directory as a sink.

    The counts are read from the committed card alone, so they depend on records only through the
    release. Call this after the commit, for any attempt: another draw may have won.
    """
    card = committed_card(store_for(directory, "output"), directory)
    if card is None:
        return
    sizes = [file.num_bytes for file in card.files.values()]
    numbers = {"releases": 1, "files": len(sizes), "bytes": sum(sizes)}
    if card.kind == "synthetic_database":
        (numbers["records"],) = card.fields["num_records"].values()
    elif card.kind == "answers":
        numbers["answers"] = card.fields["num_answers"]
    for name, number in numbers.items():
        Metrics.counter(COUNTERS, f"{name}_committed").inc(number)
    Lineage.sinks().add(*_lineage_name(directory), last_segment_sep="/")


def report_source(pattern: str) -> None:
    """Gives Beam's lineage a pattern of files, as it was typed; their names are left out."""
    Lineage.sources().add(*_lineage_name(pattern), last_segment_sep="/")


def _lineage_name(path: str) -> tuple[str, ...]:
    """Returns a path in the form that Beam's own sources and sinks use."""
    scheme, is_url, place = path.partition("://")
    if not is_url:
        return "filesystem", "localhost", os.path.abspath(path)
    bucket, _, name = place.partition("/")
    return "gcs" if scheme == "gs" else scheme, bucket, name


# The share of a stage that workers in this process have done, for lines on a terminal.
#
# A share is read at intervals of time only. So it shows no more than the time of the stage does:
# the number of its parts, which may depend on the records or on noise, is never printed.


class ShareDone:
    """Counts the parts of a stage: ranges of files to read, or files to write."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Forgets the parts of earlier jobs."""
        self._found = self._done = 0

    def found(self, number: int = 1) -> None:
        """Counts parts that have to be done."""
        with self._lock:
            self._found += number

    def done(self) -> None:
        """Counts a part that is done."""
        with self._lock:
            self._done += 1

    def text(self) -> str:
        """Returns the share of a stage that has begun, and has not ended; else an empty text."""
        with self._lock:
            is_open = 0 < self._found > self._done
            return f"{100 * self._done // self._found} % of the {self._name}" if is_open else ""


READ = ShareDone("files are read")
WRITTEN = ShareDone("records are written")


# Errors that a job may show, because their messages contain nothing from records.


P = ParamSpec("P")
T = TypeVar("T")


def show_setup(setup: Callable[P, T]) -> Callable[P, T]:
    """Decorates ``DoFn.setup``: raises errors that ``public_fault`` describes as ``SetupError``.

    Use the decorator only for ``setup``, which a runner calls before it hands over elements. Other
    errors pass unchanged; the program that runs the job withholds them.
    """

    @functools.wraps(setup)
    def telling(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return setup(*args, **kwargs)
        except (ImportError, OSError) as error:
            fault = public_fault(error)
            if fault is None:
                raise
            raise SetupError(f"a worker can't be set up: {fault}") from None

    return telling


@contextlib.contextmanager
def name_file_only(path: str) -> Iterator[None]:
    """Replaces any error raised in reading a file with one that contains only the file's name."""
    try:
        yield
    except ReadError:
        raise
    except FileError as error:
        raise ReadError(f"{path}: {error}") from None
    except Exception as error:
        # Parsers quote invalid bytes in their messages.
        raise ReadError(f"{path}: cannot be read{reason_of(error)}") from None


def reason_of(error: Exception) -> str:
    """Returns the reason that may be shown, to print after what has failed."""
    fault = public_fault(error)
    return "" if fault is None else f": {fault}"
