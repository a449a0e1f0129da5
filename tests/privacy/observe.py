"""Everything that a job lets anybody see besides Beam's own counts: collected, to be compared.

A job is run with noise from a script: noisy values are the same whatever the data are. What then
still differs between two inputs went around the noise.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import io
import json
import logging
import os
import pathlib
import re
import shutil
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from job_pages import expected
from noise_sources import Scripted

import beam_dp.transforms.drawing.one_worker as one_worker
from pipelines.release_synthetic_database import main

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# What a job has been doing for how long, or which share is done, at intervals of a clock.
_TICK = re.compile(
    r"^\[TIME\] working(?:: .+ for \d+ s"
    r"(?:, about \d+ to \d+ s left|, at most about \d+ s left|, longer than usual)?"
    r"|: \d+ % of the (?:files are read|records are written))?\n",
    re.MULTILINE,
)
OUR_FOLDERS = tuple(f"{ROOT / name}{os.sep}" for name in ("beam_dp", "pipelines", "tests"))


@dataclass(frozen=True)
class Observed:
    """What is seen of one job, by kind; two jobs are compared kind by kind."""

    exit_code: object
    stdout: str
    stderr: str
    logs: tuple[str, ...]
    metrics: tuple[str, ...]
    written: tuple[str, ...]  # names of files opened for writing, also those that are gone
    files: tuple[tuple[str, int, str], ...]  # name, size, digest of what is left
    card: str

    def differences(self, other: Observed) -> list[str]:
        return [name for name in vars(self) if getattr(self, name) != getattr(other, name)]

    def explain(self, other: Observed) -> list[str]:
        found = []
        for name in self.differences(other):
            one, two = getattr(self, name), getattr(other, name)
            if isinstance(one, tuple):
                one, two = (
                    list((collections.Counter(a) - collections.Counter(b)).elements())
                    for a, b in ((one, two), (two, one))
                )
            found.append(f"{name}: {one!s:.2000} != {two!s:.2000}")
        return found

    def everything(self) -> str:
        return repr(self)


class SameWhateverTheData(Scripted):
    """200 to 70,000 records, by the grid of the noise, spread by a fixed rule whatever is asked."""

    def __init__(self) -> None:
        super().__init__(selections=(0, 1, 0), answer=_plausible)


def _plausible(number: int, shape: tuple[int, ...]) -> np.ndarray:
    size = int(np.prod(shape))
    values = 2**16 // max(size, 1) + 97 * ((np.arange(size) * 7 + number) % 5)
    return values.astype(np.int64).reshape(shape)


_OPENED: list[str] | None = None


def _on_event(event: str, arguments: Any) -> None:
    if _OPENED is None or event not in ("open", "os.mkdir", "os.rename", "os.link", "os.symlink"):
        return
    if event == "open":
        path, _, flags = arguments
        is_writing = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if not is_writing or not isinstance(path, str | bytes | os.PathLike):
            return
        _OPENED.append(os.fsdecode(path))
    else:
        _OPENED.append(f"{event} {os.fsdecode(arguments[0])}")


sys.addaudithook(_on_event)  # cannot be removed: it is silent while nothing is observed


class _Collector(logging.Handler):
    """Keeps what code of ours logs, on any logger, at any level."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.ours: list[str] = []
        self.all: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = f"{record.levelname} {record.name} {record.getMessage()}"
        if record.exc_info:
            line += "".join(traceback.format_exception(*record.exc_info))
        self.all.append(line)
        if record.pathname.startswith(OUR_FOLDERS) or record.name.startswith("beam_dp"):
            self.ours.append(line)


@contextlib.contextmanager
def _debugging() -> Iterator[_Collector]:
    collector = _Collector()
    loggers = [logging.getLogger(), logging.getLogger("beam_dp.progress")]
    before = [logger.level for logger in loggers]
    beam_logger = logging.getLogger("apache_beam")
    beam_level = beam_logger.level
    beam_logger.setLevel(logging.WARNING)
    for logger in loggers:
        logger.addHandler(collector)
        logger.setLevel(logging.DEBUG)
    try:
        yield collector
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.removeHandler(collector)
            logger.setLevel(level)
        beam_logger.setLevel(beam_level)


def observe(
    argv: Sequence[str],
    folder: pathlib.Path,
    patch: pytest.MonkeyPatch,
    *,
    scripted: bool = True,
    program: Callable[[Sequence[str]], int] = main,
) -> Observed:
    """Runs the program on a command line whose --output is ``folder / "out"``.

    Args:
        argv: the command line.
        folder: where the output and a temporary directory of the job's own are.
        patch: restores what is replaced.
        scripted: whether noise is from the script; else it is real.
        program: what is run.
    """
    global _OPENED
    temporary = folder / "temporary"
    temporary.mkdir()
    results: list[Any] = []
    run = beam.Pipeline.run

    def keep_result(*args: Any, **keywords: Any) -> Any:
        results.append(run(*args, **keywords))
        return results[-1]

    with contextlib.ExitStack() as stack:
        here = stack.enter_context(pytest.MonkeyPatch.context())
        here.setattr(tempfile, "tempdir", str(temporary))
        here.setenv("TMPDIR", str(temporary))
        here.setattr(beam.Pipeline, "run", keep_result)
        if scripted:
            here.setattr(one_worker, "NoiseSource", SameWhateverTheData)
        streams = io.StringIO(), io.StringIO()
        stack.enter_context(contextlib.redirect_stdout(streams[0]))
        stack.enter_context(contextlib.redirect_stderr(streams[1]))
        caught = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        logs = stack.enter_context(_debugging())
        _OPENED = opened = []
        try:
            exit_code: object = program(argv)
        except BaseException as error:
            exit_code = "".join(traceback.format_exception(error))
        finally:
            _OPENED = None

    def public(text: str) -> str:
        text = text.replace(str(folder), "FOLDER")
        text = _TICK.sub("", re.sub(r"\[ *\d+\.\d s\]", "[TIME]", text))
        if not scripted:
            text = re.sub(r"[0-9a-f]{32}", "DRAW", text)
            # A function of the released number, whose noise decides whether it is there.
            text = re.sub(r"^warning: the noisy number of records is .*\n", "", text, flags=re.M)
        return re.sub(r"(draft-\w+-|beam-pipeline-temp)\w{8}\b", r"\1RANDOM", text)

    files = []
    for root in (folder / "out", temporary):
        for path in sorted(root.rglob("*")):
            data = path.read_bytes() if path.is_file() else b""
            digest = hashlib.sha256(data).hexdigest() if scripted else "drawn"
            name = public(path.relative_to(folder).as_posix())
            files.append((name, len(data) if scripted else 0, digest))
    card = folder / "out" / "card.json"
    return Observed(
        exit_code=public(exit_code) if isinstance(exit_code, str) else exit_code,
        stdout=public(streams[0].getvalue()),
        stderr=public(streams[1].getvalue()),
        logs=tuple(public(line) for line in logs.ours)
        + tuple(f"warning {public(str(each.message))}" for each in caught),
        metrics=tuple(_metrics(results, {} if scripted else expected(folder / "out"))),
        written=tuple(sorted(public(path) for path in opened)),
        files=tuple(files),
        card=public(card.read_text()) if card.exists() and scripted else _structure(card),
    )


def _metrics(results: list[Any], of_release: dict[str, int]) -> Iterator[str]:
    """Every metric that a step of a pipeline can define, with what it came to, if not known."""

    def shown(metric: Any) -> str:
        known = of_release.get(metric.key.metric.name) == metric.committed
        return f"{metric.key} {'as the release says' if known else metric.committed}"

    for result in results:
        for kind, values in sorted(result.metrics().query().items()):
            yield from sorted(f"{kind} {shown(each)}" for each in values)


def _structure(card: pathlib.Path) -> str:
    """The card with every number and text replaced by its type."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {re.sub(r"[0-9a-f]{32}", "DRAW", key): walk(each) for key, each in value.items()}
        if isinstance(value, list):
            return [walk(each) for each in value]
        return type(value).__name__

    return json.dumps(walk(json.loads(card.read_text()))) if card.exists() else "none"


def left_by(folder: pathlib.Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of every file that a job left behind."""
    for root in (folder / "out", folder / "temporary"):
        for path in sorted(root.rglob("*")):
            if path.is_file():
                yield path.name, path.read_bytes()


def clean(folder: pathlib.Path) -> pathlib.Path:
    """An empty folder of that name: paths of two jobs have equal lengths, and equal texts."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
