"""A signal stops a program without a draft, a traceback, or a word of success."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from jobs import job_flags
from patience import wait_for
from pytest import CaptureFixture, MonkeyPatch
from stopped_program import assert_stops

from pipelines import running
from pipelines.release_synthetic_database import main
from pipelines.running import Stopped, StopSignals, cancel, cancelling


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_write_leaves_no_draft(tmp_path: Path, number: signal.Signals) -> None:
    assert_stops(tmp_path, number)


def test_a_signal_before_the_job_costs_a_line(
    tmp_path: Path, monkeypatch: MonkeyPatch, capfd: CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(
        "pipelines.release_synthetic_database.plan_release",
        lambda *_: os.kill(os.getpid(), signal.SIGTERM),
    )
    assert main(job_flags(tmp_path)) == 128 + signal.SIGTERM
    assert capfd.readouterr() == ("", "error: stopped by SIGTERM\n")
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.slow
def test_a_signal_while_drafts_are_removed_waits_until_they_are(
    tmp_path: Path, monkeypatch: MonkeyPatch, capfd: CaptureFixture[str]
) -> None:
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


def test_a_runner_that_cannot_cancel_is_left_alone(monkeypatch: MonkeyPatch) -> None:
    result = Result()
    cancel(result, PipelineOptions([]))
    assert result.state == "CANCELLED"
    cancel(Result(NotImplementedError()), PipelineOptions([]))
    monkeypatch.setattr("pipelines.running.SECONDS_TO_CANCEL", 0.1)
    monkeypatch.setattr(Result, "cancel", lambda _: None)
    cancel(Result(), PipelineOptions([]))


def test_a_job_that_is_over_and_does_not_end_is_cancelled(monkeypatch: MonkeyPatch) -> None:
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


def test_a_job_that_ends_is_not_cancelled(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.running.SECONDS_BETWEEN_LOOKS", 0.001)
    result, asked = Result(), threading.Event()
    with cancelling(result, PipelineOptions([]), lambda: asked.set() or True):
        asked.wait()
    assert result.state == "RUNNING"


def test_whoever_listens_meanwhile_is_told_after_the_job() -> None:
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


def test_the_job_is_cancelled(
    tmp_path: Path, monkeypatch: MonkeyPatch, capfd: CaptureFixture[str]
) -> None:
    class Waiting(Result):
        def wait_until_finish(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    result = Waiting()
    monkeypatch.setattr(beam.Pipeline, "run", lambda _: result)
    monkeypatch.setattr(running, "silence_beam", lambda: None)  # it lasts
    assert main(job_flags(tmp_path)) == 128 + signal.SIGINT
    assert result.state == "CANCELLED"
    assert capfd.readouterr().err.count("error:") == 1
