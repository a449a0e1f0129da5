"""What is shown while a job runs, and of a job that failed."""

from __future__ import annotations

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

from beam_dp.domain.texts import checked_json
from beam_dp.errors import InputError
from beam_dp.transforms import ReadError
from beam_dp.transforms.shares_done import READ, WRITTEN, ShareDone
from pipelines import progress, release_synthetic_database
from pipelines.progress import PROGRESS_LOGGER, Progress, Step, failure


@pytest.fixture(autouse=True)
def loud_beam(monkeypatch) -> None:
    """A job that was stopped in this process has silenced Beam for good."""
    monkeypatch.setattr(logging.getLogger("apache_beam"), "level", logging.NOTSET)
    logging.getLogger("apache_beam").manager._clear_cache()
    monkeypatch.setattr(logging.getLogger(), "filters", [])


def test_shows_progress_of_workers(capfd):
    with Progress().listening(silence_beam=True):
        logging.getLogger(PROGRESS_LOGGER).info("%s: %d of %d", "fit", 3, 30)
    assert capfd.readouterr().err.endswith(" s] fit: 3 of 30\n")


def test_step_of_many_rounds_prints_about_ten_lines(capfd):
    with Progress().listening(silence_beam=True):
        for done in range(1, 1001):
            logging.getLogger(PROGRESS_LOGGER).info("%s: %d of %d", "fit", done, 1000)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 11
    assert lines[0].endswith("fit: 1 of 1000")
    assert lines[-1].endswith("fit: 1000 of 1000")


def test_quiet_job_prints_that_it_is_working(capfd, monkeypatch):
    monkeypatch.setattr("pipelines.progress.SECONDS_BETWEEN_TICKS", 0.01)
    with Progress().listening(silence_beam=True):
        wait_for("a tick", lambda: " s] working\n" in capfd.readouterr().err)


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


def test_line_of_a_tick_stays_at_the_bottom_of_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    monkeypatch.setattr("pipelines.progress.SECONDS_BETWEEN_TICKS", 0.01)
    with Progress().listening(silence_beam=True):
        READ.found(3)
        READ.done()
        wait_for("a tick", lambda: "working: 33 % of the files are read" in terminal.getvalue())
        logging.getLogger(PROGRESS_LOGGER).info("%s: %d of %d", "fit", 3, 30)
    assert " s] fit: 3 of 30\n" in terminal.getvalue()
    assert " s] working" not in terminal.getvalue()


def test_only_the_clock_of_a_terminal_moves_between_ticks(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    monkeypatch.setattr("pipelines.progress.SECONDS_BEFORE_TICK", HANG_SECONDS)
    monkeypatch.setattr("pipelines.progress.SECONDS_BETWEEN_TICKS", HANG_SECONDS)
    with Progress().listening(silence_beam=True):
        READ.found(3)
        READ.done()
        wait_for("the clock", lambda: "0:00:02" in terminal.getvalue())
    assert "working" in terminal.getvalue() and "%" not in terminal.getvalue()


@pytest.mark.parametrize("name", ["TERM", "JPY_PARENT_PID"])
def test_terminal_that_cannot_write_over_a_line_gets_lines(name, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(name, "dumb")
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    monkeypatch.setattr("pipelines.progress.SECONDS_BETWEEN_TICKS", 0.01)
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


@pytest.mark.parametrize(
    ("text", "seconds", "told"),
    [
        ("fit: about 60 to 240 s", 0, "fit for 0 s, about 60 to 240 s left"),
        ("fit: about 60 to 240 s", 30, "fit for 30 s, about 30 to 210 s left"),
        ("fit: about 60 to 240 s", 60, "fit for 60 s, at most about 180 s left"),
        ("fit: about 60 to 240 s", 240, "fit for 240 s, longer than usual"),
        ("fit", 90, "fit for 90 s"),
        ("round: 3 of 30", 7, "round for 7 s"),
    ],
)
def test_step_shows_elapsed_and_remaining_time(text, seconds, told):
    assert Step.told_by(text, 1000.0, 5.0).at(1000.0 + seconds, 5.0 + seconds) == told


@pytest.mark.parametrize(
    ("busy", "told"),
    [
        (20, "fit for 80 s, about 160 to 880 s left"),  # of a processor a quarter
        (120, "fit for 80 s, at most about 120 s left"),  # other threads worked, too
        (0, "fit for 80 s, about 60 to 240 s left"),
    ],
)
def test_remaining_time_follows_the_current_pace(busy, told):
    assert Step.told_by("fit: about 60 to 240 s", 0.0, 0.0).at(80.0, float(busy)) == told


def test_repeated_step_replaces_its_estimate(monkeypatch):
    now = 0.0
    monkeypatch.setattr("pipelines.progress.time.monotonic", lambda: now)
    monkeypatch.setattr("pipelines.progress.time.process_time", lambda: now)
    shown = Progress()
    for now, heard, told in (
        (0.0, "fit: about 60 to 240 s", "fit for 10 s, about 50 to 230 s left"),
        (300.0, "fit: about 20 to 40 s", "fit for 10 s, about 10 to 30 s left"),
        (400.0, "fit", "fit for 10 s"),
        (500.0, "fit: 2 of 3", "fit for 110 s"),
    ):
        shown.hear(heard)
        assert shown._step is not None
        assert shown._step.at(now + 10, now + 10) == told


def test_progress_lines_name_the_current_step(capfd, monkeypatch):
    times = iter(range(100, 10**6))
    monkeypatch.setattr("pipelines.progress.SECONDS_BETWEEN_TICKS", 0.01)
    monkeypatch.setattr("pipelines.progress.time.monotonic", lambda: float(next(times)))
    shown = ""

    def is_told(told: str) -> bool:
        nonlocal shown
        shown += capfd.readouterr().err
        return told in shown

    with Progress().listening(silence_beam=True):
        for number in range(1, 4):
            logging.getLogger(PROGRESS_LOGGER).info("round: %d of 3", number)
        wait_for("a tick of the rounds", lambda: is_told("working: round for "))
        logging.getLogger(PROGRESS_LOGGER).info("fit: about 100000 to 200000 s")
        wait_for("a tick of the fit", lambda: is_told("working: fit for "))
    assert re.search(r"working: fit for \d+ s, about \d+ to \d+ s left\n", shown)


def test_progress_line_with_its_own_text_does_not_name_a_step(capfd, monkeypatch):
    """Of a stream each window has such a step."""
    monkeypatch.setattr("pipelines.progress.SECONDS_BETWEEN_TICKS", 0.01)
    with Progress().listening(silence_beam=True, alive=lambda: "released: 3 of 24"):
        logging.getLogger(PROGRESS_LOGGER).info("fit")
        wait_for("a tick", lambda: " s] released: 3 of 24\n" in capfd.readouterr().err)


def test_progress_message_after_the_job_is_not_printed(capfd):
    with Progress().listening(silence_beam=True):
        pass
    logging.getLogger(PROGRESS_LOGGER).info("late")
    assert capfd.readouterr().err == ""


def test_silences_beams_tracebacks_only_for_local_jobs(caplog):
    logger = logging.getLogger("apache_beam.runners.common")
    with Progress().listening(silence_beam=True):
        logger.error("record 7 of alice")
    assert caplog.records == []
    with Progress().listening(silence_beam=False):
        logger.error("a remote runner's own message")
    assert len(caplog.records) == 1


def test_silences_failing_threads_only_for_local_jobs(capfd, monkeypatch):
    """As one that waits for a worker process which Ctrl-C ends, too."""
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)

    def run_failing_thread() -> None:
        thread = threading.Thread(target=lambda: [][7])
        thread.start()
        thread.join()

    with Progress().listening(silence_beam=True):
        run_failing_thread()
    assert capfd.readouterr().err == ""
    with Progress().listening(silence_beam=False):
        run_failing_thread()
    assert "IndexError" in capfd.readouterr().err


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


def test_silences_the_root_logger_only_for_local_jobs(caplog):
    """As Beam does with what a job server tells, which may be a worker's traceback."""
    with Progress().listening(silence_beam=True):
        logging.error("record 7 of alice")
    assert caplog.records == []
    logging.error("after the job")
    assert len(caplog.records) == 1


def test_shows_messages_from_public_errors():
    error = InputError("input [while running 'Read/Do']", "people.parquet", "must be readable")
    assert failure(error) == "input: 'people.parquet' is not valid: must be readable"
    assert (
        failure(ReadError("a.csv: cannot be read [while running 'R']")) == "a.csv: cannot be read"
    )


def test_shows_only_our_error_from_text_quoted_by_an_engine():
    quoted = (
        "Pipeline p failed in state FAILED: java.lang.RuntimeException: Error received from SDK"
        " harness for instruction 11: Traceback (most recent call last):\n"
        '  File "bundle_processor.py", line 1, in process\n'
        "    rows = read(alice)\n"
        "beam_dp.transforms.errors.ReadError: a.csv: cannot be read [while running 'Read/R']\n\n"
        "\tat org.apache.beam.runners.fnexecution (record 7 of alice)"
    )
    assert failure(RuntimeError(quoted)) == "a.csv: cannot be read"
    withheld = failure(RuntimeError(quoted.replace("beam_dp.transforms.errors.Read", "Value")))
    assert "alice" not in withheld and "RuntimeError" in withheld


def test_withholds_messages_from_other_errors():
    try:
        checked_json("domain", "visits.json", 7)  # type: ignore[arg-type]
    except Exception as error:
        line = failure(error)
    assert line.startswith("the job failed with ")
    assert " at beam_dp/domain/texts.py:" in line
    assert "withheld" in line and "was not stored; `beam-dp check-domain` tests" in line


def test_error_outside_the_package_shows_no_location():
    assert "alice" not in failure(RuntimeError("record 7 of alice"))
