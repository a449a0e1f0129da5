"""A job that fails or is stopped: what is shown, and that no draft or word of success is left."""

from __future__ import annotations

import ast
import errno
import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.portable_runner import PipelineResult, PortableRunner
from jobs import everything_under, job_flags, people
from patience import HANG_SECONDS, wait_for
from stopped_program import assert_stops

import beam_dp.transforms
from beam_dp.domain.texts import checked_json
from beam_dp.transforms.job_page import SetupError
from pipelines import running
from pipelines.progress import failure
from pipelines.release_synthetic_database import main
from pipelines.running import Stopped, StopSignals, cancel, cancelling

SECRET = "4711 of alice"
EMBEDDED = {"runner": "PortableRunner", "job_endpoint": "embed"}
Program = Callable[..., str]


def no_module(name: str = "opendp.missing") -> ImportError:
    return ModuleNotFoundError(f"{SECRET}: no module", name=name)


def no_file(path: str = SECRET) -> OSError:
    return FileNotFoundError(errno.ENOENT, SECRET, path)


WITHHELD = [
    RuntimeError(SECRET),
    KeyError(SECRET),
    ImportError(SECRET),
    ModuleNotFoundError(SECRET, name="alice smith"),
    ModuleNotFoundError(SECRET, name="a" * 500),
    OSError(SECRET),
    OSError(4711, SECRET),
    SystemError(SECRET),
]


@pytest.fixture
def fails(tmp_path, capfd) -> Program:
    """Runs a small program that ends in one line of error, which holds no secret."""

    def check(code: int = 1, **flags: str) -> str:
        argv = job_flags(tmp_path, people(20), **flags)
        capfd.readouterr()
        assert main(argv) == code
        out, err = capfd.readouterr()
        assert out == "" and SECRET not in err and "4711" not in err and "alice" not in err
        (line,) = re.findall(r"^error: .*\n", err, re.M)
        assert err.endswith(line) and everything_under(tmp_path / "out") == []
        return str(line)

    return check


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


class Submitted(PipelineResult):
    def __init__(self) -> None:
        pass

    wait_until_finish = raising(no_module())


NOT_INSTALLED = "the module 'opendp.missing' is not installed\n"
SETUP, SUBMITTED = (
    f"error: {what}: " for what in ("a worker can't be set up", "the job was not submitted")
)
NOISE = "beam_dp.transforms.drawing.one_worker.NoiseSource"
STEPS = "beam_dp.transforms.counting.summarise"
SUBMIT = f"{PortableRunner.__module__}.PortableRunner.run_pipeline"
# What fails in a job and how, and the line, if the error is not withheld.
FAULTS: list[tuple[str, Callable[..., Any] | BaseException, str | None]] = [
    (NOISE, no_module(), SETUP + NOT_INSTALLED),
    (NOISE, no_file(), SETUP + "No such file or directory\n"),
    *((NOISE, error, None) for error in (WITHHELD[0], WITHHELD[3])),
    # Steps that see records.
    ("beam_dp.transforms.drawing.one_worker.release_shards", no_module(), None),
    (f"{STEPS}.encode_records", no_file(), None),
    (f"{STEPS}.encode_records", SetupError(SECRET), None),
    (f"{STEPS}._AddShards.add_input", no_module(), None),
    (f"{STEPS}._CountBundle.start_bundle", no_module(), None),
    (f"{STEPS}._CountBundle.start_bundle", no_file(), None),
    (SUBMIT, no_module(), SUBMITTED + NOT_INSTALLED),
    (
        SUBMIT,
        no_file(f"ARTIFACTS/{SECRET}"),
        f"{SUBMITTED}--artifacts_dir: 'ARTIFACTS': No such file or directory\n",
    ),
    *((SUBMIT, error, None) for error in (WITHHELD[0], WITHHELD[3], no_file())),
    (SUBMIT, lambda *_: Submitted(), None),  # after the submission
    # Workers in this process print no traceback, also of a step that needs no guard.
    ("beam_dp.transforms.writing.commit_release", OSError(SECRET), None),
]


@pytest.mark.job
@pytest.mark.parametrize(
    ("place", "fault", "line"), FAULTS, ids=lambda each: getattr(each, "__name__", repr(each))
)
def test_only_failing_setup_and_submission_name_what_is_missing(
    fails, monkeypatch, tmp_path, place, fault, line
):
    typed, flags = str(tmp_path / "artifacts"), {}
    if isinstance(fault, OSError) and fault.filename:
        fault = no_file(fault.filename.replace("ARTIFACTS", typed))
    if place == SUBMIT:
        flags = {**EMBEDDED, "artifacts_dir": typed}
    elif "commit" in place:
        flags = {**EMBEDDED, "environment_type": "LOOPBACK"}
    monkeypatch.setattr(place, raising(fault) if isinstance(fault, Exception) else fault)
    found = fails(**flags)
    assert "withheld" in found if line is None else found == line.replace("ARTIFACTS", typed)


class OwnRunner(PortableRunner):
    """Of a user: it may run the job where Beam's only submit it."""


@pytest.mark.job
@pytest.mark.parametrize(
    ("runner", "flags"), [(FnApiRunner, {}), (OwnRunner, {"runner": f"{__name__}.OwnRunner"})]
)
def test_withholds_errors_raised_by_a_runner_that_may_run_the_job_itself(
    fails, monkeypatch, runner, flags
):
    monkeypatch.setattr(runner, "run_pipeline", raising(no_module()))
    assert "withheld" in fails(**flags)


def test_failure_of_ours_names_the_line_of_code():
    with pytest.raises(TypeError) as caught:
        checked_json("domain", "visits.json", 7)  # type: ignore[arg-type]
    line = failure(caught.value)
    assert line.startswith("the job failed with ") and " at beam_dp/domain/texts.py:" in line
    assert "withheld" in line and "was not stored; `beam-dp check-domain` tests" in line


def test_missing_module_gives_a_one_line_error(fails, monkeypatch, tmp_path):
    name = "beam_dp.mechanisms.stages.plan_release"
    monkeypatch.setattr(name, raising(no_module("scipy")))
    assert fails(2) == "error: the module 'scipy' is not installed\n"
    monkeypatch.setattr(name, raising(no_file(str(tmp_path / "domain.json"))))
    assert fails(2) == f"error: --domain: '{tmp_path}/domain.json': No such file or directory\n"
    monkeypatch.setattr(name, raising(no_file()))
    with pytest.raises(OSError, match=SECRET):  # a mistake of ours, to be reported whole
        fails(2)


def test_only_setup_methods_show_what_is_missing():
    decorated: dict[str, set[bool]] = {}
    for path in Path(beam_dp.transforms.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                names = {ast.unparse(each) for each in node.decorator_list}
                decorated.setdefault(node.name, set()).add("show_setup" in names)
    assert decorated.pop("setup") == {True}
    assert set().union(*decorated.values()) == {False}


@pytest.mark.job
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.part)]
)
def test_signal_during_the_write_leaves_no_draft(tmp_path, number):
    assert_stops(tmp_path, number)


def test_signal_before_the_job_prints_one_line(tmp_path, monkeypatch, capfd):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(
        "beam_dp.mechanisms.stages.plan_release",
        lambda *_: os.kill(os.getpid(), signal.SIGTERM),
    )
    assert main(job_flags(tmp_path)) == 128 + signal.SIGTERM
    assert capfd.readouterr() == ("", "error: stopped by SIGTERM\n")
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.job
def test_signal_waits_until_drafts_are_removed(tmp_path, monkeypatch, capfd):
    removed = []

    def finish(output: str) -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        removed.append(output)
        return True

    monkeypatch.setattr(running, "finish_writing", finish)
    assert main(job_flags(tmp_path)) == 128 + signal.SIGINT
    assert removed == [str(tmp_path / "out")]
    assert capfd.readouterr().err.endswith("error: stopped by SIGINT\n")


class Result:
    """A job that can be cancelled, or can't; it never ends by itself."""

    def __init__(self, error: Exception | None = None) -> None:
        self.state = "RUNNING"
        self.error = error

    def cancel(self) -> None:
        if self.error is not None:
            raise self.error
        self.state = "CANCELLED"


def test_job_is_cancelled_by_what_can_cancel_it_if_it_does_not_end(monkeypatch):
    monkeypatch.setattr("pipelines.running.SECONDS_BETWEEN_LOOKS", 0.001)
    monkeypatch.setattr("pipelines.running.SECONDS_TO_END", 0.001)
    result, asked = Result(), threading.Semaphore(0)

    def is_over() -> bool:
        asked.release()
        return result.state == "OVER"

    with cancelling(result, PipelineOptions([]), is_over):
        asked.acquire()
        asked.acquire()  # it had said no
        assert result.state == "RUNNING"
        result.state = "OVER"
        wait_for("the job's end", lambda: result.state == "CANCELLED")
    monkeypatch.setattr("pipelines.running.SECONDS_TO_END", HANG_SECONDS)
    result, asked = Result(), threading.Event()
    with cancelling(result, PipelineOptions([]), lambda: asked.set() or True):
        asked.wait()
    assert result.state == "RUNNING"
    result = Result()
    cancel(result, PipelineOptions([]))
    assert result.state == "CANCELLED"
    monkeypatch.setattr("pipelines.running.SECONDS_TO_CANCEL", 0.1)
    cancel(Result(NotImplementedError()), PipelineOptions([]))
    monkeypatch.setattr(Result, "cancel", lambda _: None)
    cancel(Result(), PipelineOptions([]))


def test_other_signal_handlers_are_called_after_the_job():
    """As Beam's job server, which replaces the handler of Ctrl-C, and passes it on."""
    told = []
    with StopSignals() as signals:
        first = signal.getsignal(signal.SIGINT)

        def listen(number: int, frame: object) -> None:
            told.append(number)
            assert callable(first)
            first(number, None)

        signal.signal(signal.SIGINT, listen)
        signals.install()
        with pytest.raises(Stopped):
            os.kill(os.getpid(), signal.SIGTERM)
        assert told == []
        signals.hold()
        signals.pass_on()
    assert told == [signal.SIGINT] and signals.received is signal.SIGTERM


def test_signal_cancels_the_job(tmp_path, monkeypatch, capfd):
    class Waiting(Result):
        def wait_until_finish(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    result = Waiting()
    monkeypatch.setattr(beam.Pipeline, "run", lambda _: result)
    monkeypatch.setattr(running, "silence_beam", lambda: None)  # it lasts
    assert main(job_flags(tmp_path)) == 128 + signal.SIGINT
    assert result.state == "CANCELLED"
    assert capfd.readouterr().err.count("error:") == 1
