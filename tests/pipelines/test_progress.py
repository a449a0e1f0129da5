"""What is shown while a job runs, and of a job that failed."""

import io
import logging
import re
import threading
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.worker import sdk_worker
from jobs import job_flags
from patience import HANG_SECONDS, wait_for

from beam_dp.transforms.job_page import READ, WRITTEN, ShareDone
from pipelines import progress, release_synthetic_database
from pipelines.progress import PROGRESS_LOGGER, Progress


@pytest.fixture(autouse=True)
def loud_beam(monkeypatch) -> None:
    """A job that was stopped in this process has silenced Beam for good."""
    monkeypatch.setattr(logging.getLogger("apache_beam"), "level", logging.NOTSET)
    logging.getLogger("apache_beam").manager._clear_cache()
    monkeypatch.setattr(logging.getLogger(), "filters", [])


def test_steps_show_their_rounds_and_end_with_the_job(capfd):
    with Progress().listening(silence_beam=True):
        for done in range(1, 1001):
            logging.getLogger(PROGRESS_LOGGER).info("%s: %d of %d", "fit", done, 1000)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 11
    assert lines[0].endswith("fit: 1 of 1000")
    assert lines[-1].endswith("fit: 1000 of 1000")
    with Progress().listening(silence_beam=True):
        pass
    logging.getLogger(PROGRESS_LOGGER).info("late")
    assert capfd.readouterr().err == ""


def test_quiet_job_prints_the_share_of_what_is_read_and_written(capfd, monkeypatch):
    monkeypatch.setattr("pipelines.progress.SECONDS_BETWEEN_TICKS", 0.01)
    with Progress().listening(silence_beam=True):
        for share, told in ((READ, "files are read"), (WRITTEN, "records are written")):
            share.found(3)
            share.done()
            text = f" s] working: 33 % of the {told}\n"
            wait_for("a tick", lambda text=text: text in capfd.readouterr().err)
        logging.getLogger(PROGRESS_LOGGER).info("fit")
        for _ in range(2):
            WRITTEN.done()
        wait_for("a tick of the fit", lambda: " s] working: fit for " in capfd.readouterr().err)
    with Progress().listening(silence_beam=True):
        wait_for("a tick of another job", lambda: " s] working\n" in capfd.readouterr().err)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal_in(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    monkeypatch.setattr("sys.stderr", shown := Terminal())
    monkeypatch.setattr("pipelines.progress.SECONDS_BETWEEN_TICKS", 0.01)
    return shown


def test_line_of_a_tick_stays_at_the_bottom_of_a_terminal(monkeypatch):
    terminal = terminal_in(monkeypatch)
    with Progress().listening(silence_beam=True):
        READ.found(3)
        READ.done()
        wait_for("a tick", lambda: "working: 33 % of the files are read" in terminal.getvalue())
        logging.getLogger(PROGRESS_LOGGER).info("%s: %d of %d", "fit", 3, 30)
    assert " s] fit: 3 of 30\n" in terminal.getvalue()
    assert " s] working" not in terminal.getvalue()


def test_only_the_clock_of_a_terminal_moves_between_ticks(monkeypatch):
    terminal = terminal_in(monkeypatch)
    for name in ("BEFORE_TICK", "BETWEEN_TICKS"):
        monkeypatch.setattr(f"pipelines.progress.SECONDS_{name}", HANG_SECONDS)
    with Progress().listening(silence_beam=True):
        READ.found(3)
        READ.done()
        # A busy machine may skip a second.
        wait_for("the clock", lambda: len(set(re.findall(r"0:\d\d:\d\d", terminal.getvalue()))) > 2)
    assert "working" in terminal.getvalue() and "%" not in terminal.getvalue()


@pytest.mark.parametrize("name", ["TERM", "JPY_PARENT_PID"])
def test_terminal_that_cannot_write_over_a_line_gets_lines(name, monkeypatch):
    terminal = terminal_in(monkeypatch)
    monkeypatch.setenv(name, "dumb")
    with Progress().listening(silence_beam=True):
        wait_for("a tick", lambda: " s] working\n" in terminal.getvalue())
    assert "\x1b" not in terminal.getvalue()


@pytest.mark.job
@pytest.mark.parametrize("records_format", ["parquet", "csv"])
def test_job_counts_ranges_that_are_read_and_files_that_are_written(
    tmp_path, monkeypatch, records_format
):
    counted = {"found": 0, "done": 0}

    class Counted(ShareDone):
        def found(self, number=1):
            counted["found"] += number

        def done(self):
            counted["done"] += 1

    for name in ("reading.read.READ", "writing.WRITTEN"):
        monkeypatch.setattr(f"beam_dp.transforms.{name}", Counted("parts"))
    monkeypatch.setattr("beam_dp.releases.synthetic_database.shards.SHARD_BYTES", 100)
    flags = job_flags(tmp_path, records_format=records_format)
    assert release_synthetic_database.main(flags) == 0
    files = len(list((tmp_path / "out").glob("records-*")))
    assert files > 1 and counted == {"found": files + 1, "done": files + 1}


def test_line_without_news_says_how_long_the_step_has_run(capfd, monkeypatch):
    now = 0.0
    monkeypatch.setattr("pipelines.progress.SECONDS_BETWEEN_TICKS", 0.01)
    monkeypatch.setattr("pipelines.progress.time.monotonic", lambda: now)
    progress = Progress()
    with progress.listening(silence_beam=True):
        for now, text, line in (
            (0.0, "fit", "fit for 10 s"),
            (300.0, "fit", "fit for 10 s"),
            (400.0, "fit: 2 of 3", "fit for 110 s"),
        ):
            progress.hear(text)
            now += 10
            wait_for(line, lambda line=line: f" s] working: {line}\n" in capfd.readouterr().err)


def test_progress_line_with_its_own_text_does_not_name_a_step(capfd, monkeypatch):
    """Of a stream each window has such a step."""
    monkeypatch.setattr("pipelines.progress.SECONDS_BETWEEN_TICKS", 0.01)
    with Progress().listening(silence_beam=True, alive=lambda: "released: 3 of 24"):
        logging.getLogger(PROGRESS_LOGGER).info("fit")
        wait_for("a tick", lambda: " s] released: 3 of 24\n" in capfd.readouterr().err)


def test_silences_loggers_and_failing_threads_only_for_local_jobs(caplog, capfd, monkeypatch):
    """As a job server's loggers, and a thread that waits for a worker which Ctrl-C ends, too."""
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)

    def speak() -> None:
        logging.getLogger("apache_beam.runners.common").error("record 7 of alice")
        logging.error("record 7 of alice")
        thread = threading.Thread(target=lambda: [][7])
        thread.start()
        thread.join()

    for is_local in (True, False):
        with Progress().listening(silence_beam=is_local):
            speak()
        assert len(caplog.records) == (0 if is_local else 2)
        assert ("IndexError" in capfd.readouterr().err) is not is_local
    logging.error("after the job")
    assert len(caplog.records) == 3


def test_restores_beam_worker_print_after_overlapping_jobs(monkeypatch):
    monkeypatch.setattr(progress, "worker_prints", progress.WorkerPrints())
    before = vars(sdk_worker).get("print", print)
    first, second = (Progress().listening(silence_beam=True) for _ in range(2))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert vars(sdk_worker).get("print") is not before
    second.__exit__(None, None, None)
    assert vars(sdk_worker).get("print") is before


@pytest.mark.job
@pytest.mark.parametrize("fails", [False, True])
def test_restores_beam_worker_print_after_a_program(tmp_path, monkeypatch, fails):
    silent = []

    def run(pipeline: beam.Pipeline) -> Any:
        silent.append(vars(sdk_worker)["print"])
        if fails:
            raise RuntimeError("record 7 of alice")
        return SimpleNamespace(wait_until_finish=lambda: None)

    def own(*_: object) -> None:
        """As a notebook may have set it."""

    monkeypatch.setattr(beam.Pipeline, "run", run)
    monkeypatch.setattr(progress, "worker_prints", progress.WorkerPrints())
    monkeypatch.setattr(sdk_worker, "print", own, raising=False)
    release_synthetic_database.main(job_flags(tmp_path))
    assert silent[0] is not own
    assert vars(sdk_worker)["print"] is own
