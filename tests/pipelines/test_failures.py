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
from patience import wait_for
from stopped_program import assert_stops

import beam_dp.transforms
from beam_dp.errors import public_fault
from beam_dp.transforms import SetupError
from pipelines import running
from pipelines.progress import early_failure, failure
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


def test_fault_is_described_without_quoting_the_message():
    assert public_fault(no_module()) == "the module 'opendp.missing' is not installed"
    renamed = ImportError(SECRET, name="scipy.sparse")
    assert public_fault(renamed) == "the module 'scipy.sparse' is not of a version that fits"
    assert public_fault(no_file()) == "No such file or directory"
    for error in WITHHELD:
        assert public_fault(error) is None


@pytest.mark.job
def test_error_of_a_failing_worker_setup_names_the_missing_part(fails, monkeypatch):
    monkeypatch.setattr("beam_dp.transforms.drawing.one_worker.NoiseSource", raising(no_module()))
    line = fails()
    assert line == "error: a worker can't be set up: the module 'opendp.missing' is not installed\n"
    monkeypatch.setattr("beam_dp.transforms.drawing.one_worker.NoiseSource", raising(no_file()))
    assert fails() == "error: a worker can't be set up: No such file or directory\n"


@pytest.mark.job
@pytest.mark.parametrize("error", [WITHHELD[0], WITHHELD[3]], ids=repr)
def test_unlisted_error_in_worker_setup_is_reported_without_its_message(fails, monkeypatch, error):
    monkeypatch.setattr("beam_dp.transforms.drawing.one_worker.NoiseSource", raising(error))
    assert "withheld" in fails()


@pytest.mark.job
@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("drawing.one_worker.release_shards", no_module()),
        ("counting.summarise.encode_records", no_file()),
        ("counting.summarise.encode_records", SetupError(SECRET)),
        ("counting.summarise._AddShards.add_input", no_module()),
        ("counting.summarise._CountBundle.start_bundle", no_module()),
        ("counting.summarise._CountBundle.start_bundle", no_file()),
    ],
    ids=repr,
)
def test_withholds_missing_modules_in_steps_that_see_records(fails, monkeypatch, step, error):
    monkeypatch.setattr(f"beam_dp.transforms.{step}", raising(error))
    assert "withheld" in fails()


@pytest.mark.job
def test_error_of_a_failing_submission_names_the_missing_part(fails, monkeypatch, tmp_path):
    monkeypatch.setattr(PortableRunner, "run_pipeline", raising(no_module()))
    line = fails(**EMBEDDED)
    expected = "error: the job was not submitted: the module 'opendp.missing' is not installed\n"
    assert line == expected
    typed = str(tmp_path / "artifacts")
    monkeypatch.setattr(PortableRunner, "run_pipeline", raising(no_file(f"{typed}/{SECRET}")))
    line = fails(artifacts_dir=typed, **EMBEDDED)
    expected = f"error: the job was not submitted: --artifacts_dir: '{typed}': No such file"
    assert line == f"{expected} or directory\n"


@pytest.mark.job
@pytest.mark.parametrize("error", [*WITHHELD[:1], *WITHHELD[3:4], no_file()], ids=repr)
def test_unlisted_error_while_submitting_is_reported_without_its_message(fails, monkeypatch, error):
    monkeypatch.setattr(PortableRunner, "run_pipeline", raising(error))
    assert "withheld" in fails(**EMBEDDED)


@pytest.mark.job
def test_error_after_submission_is_reported_without_its_message(fails, monkeypatch):
    class Submitted(PipelineResult):
        def __init__(self) -> None:
            pass

        wait_until_finish = raising(no_module())

    monkeypatch.setattr(PortableRunner, "run_pipeline", lambda *_: Submitted())
    assert "withheld" in fails(**EMBEDDED)


@pytest.mark.job
def test_workers_in_this_process_print_no_traceback(fails, monkeypatch):
    """Beam prints it past all loggers, also that of a step that needs no guard."""
    monkeypatch.setattr("beam_dp.transforms.writing.commit_release", raising(OSError(SECRET)))
    assert "withheld" in fails(environment_type="LOOPBACK", **EMBEDDED)


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


@pytest.mark.parametrize(
    "error", ["ModuleNotFoundError: No module named 'alice'", "OSError: alice"]
)
def test_failure_line_omits_error_text_quoted_by_an_engine(error):
    quoted = f"Pipeline failed: Traceback:\n  File 'x.py', line 1, in setup\n{error}\n"
    assert "alice" not in failure(RuntimeError(quoted))


def test_shows_setup_errors_from_other_machines():
    line = "beam_dp.transforms.errors.SetupError: a worker can't be set up: the module 'x' is not"
    quoted = f"Pipeline failed: Traceback:\n  File 'x.py', line 1, in setup\n{line}\n\tat java"
    assert failure(RuntimeError(quoted)) == "a worker can't be set up: the module 'x' is not"


def test_missing_module_gives_a_one_line_error(fails, monkeypatch, tmp_path):
    name = "pipelines.release_synthetic_database.plan_release"
    monkeypatch.setattr(name, raising(no_module("scipy")))
    assert fails(2) == "error: the module 'scipy' is not installed\n"
    monkeypatch.setattr(name, raising(no_file(str(tmp_path / "domain.json"))))
    assert fails(2) == f"error: --domain: '{tmp_path}/domain.json': No such file or directory\n"
    monkeypatch.setattr(name, raising(no_file()))
    with pytest.raises(OSError, match=SECRET):  # a mistake of ours, to be reported whole
        fails(2)


def test_shows_path_only_if_it_was_typed():
    typed = {"input": "a/b", "flag": True, "output": "", "root": None}
    for path, shown in (("a/b", True), ("a/b/c", True), ("a/bc", False), ("a", False)):
        line = early_failure(no_file(path), typed)
        assert line == ("--input: 'a/b': No such file or directory" if shown else None)
    assert early_failure(OSError(errno.ENOENT, SECRET), typed) is None
    assert early_failure(OSError(errno.ENOENT, SECRET, 7), typed) is None


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
        "pipelines.release_synthetic_database.plan_release",
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


def test_cancel_ignores_runners_that_cannot_cancel(monkeypatch):
    result = Result()
    cancel(result, PipelineOptions([]))
    assert result.state == "CANCELLED"
    monkeypatch.setattr("pipelines.running.SECONDS_TO_CANCEL", 0.1)
    cancel(Result(NotImplementedError()), PipelineOptions([]))
    monkeypatch.setattr(Result, "cancel", lambda _: None)
    cancel(Result(), PipelineOptions([]))


def test_finished_job_that_does_not_end_is_cancelled(monkeypatch):
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


def test_job_that_ends_is_not_cancelled(monkeypatch):
    monkeypatch.setattr("pipelines.running.SECONDS_BETWEEN_LOOKS", 0.001)
    result, asked = Result(), threading.Event()
    with cancelling(result, PipelineOptions([]), lambda: asked.set() or True):
        asked.wait()
    assert result.state == "RUNNING"


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
