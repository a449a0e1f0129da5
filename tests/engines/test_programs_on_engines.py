"""Every program on an embedded Flink and on Prism, compared with the same on FnApiRunner."""

import pathlib
import re
import signal
from typing import Any

import pytest
from engines.contracts import PROGRAMS, card, check_answers, check_contract
from job_pages import KINDS, NEIGHBOURS, counters, expected, run
from jobs import (
    answer_flags,
    breaks_later,
    everything_under,
    files_of_one_draw,
    job_flags,
    paid_by,
)
from stopped_program import assert_stops

from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.secret.summaries.histogram import MarginalsAccumulator
from beam_dp.storage.store import LocalStore
from pipelines import answer_queries, release_synthetic_database

pytestmark = [pytest.mark.engines, pytest.mark.part]
SECRET = "a count of 4711"


@pytest.fixture(params=["flink", "prism"])
def engine(request) -> list[str]:
    """The flags of each engine, whose workers are threads of this process."""
    flags: list[str] = request.getfixturevalue(request.param)
    return flags


def assert_paid_and_released(ledger: Ledger, folder: pathlib.Path) -> None:
    (entry,) = ledger.entries("people")
    assert (entry.state, entry.draw_id) == ("released", card(folder / "out")["draw_id"])
    assert everything_under(folder / "out") == files_of_one_draw(folder / "out")


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_meets_its_contract_on_each_engine(name, tmp_path, engine):
    check_contract(PROGRAMS[name], tmp_path, engine)


def test_answers_are_accurate_and_bad_line_gets_an_error(tmp_path, engine):
    check_answers(tmp_path, engine)


def test_named_runner_starts_its_own_server(tmp_path, job_server_jar):
    flags = {"flink_master": "[local]", "flink_job_server_jar": job_server_jar}
    ledger, argv = paid_by(job_flags(tmp_path, runner="FlinkRunner", **flags), tmp_path)
    assert release_synthetic_database.main(argv) == 0
    assert_paid_and_released(ledger, tmp_path)


def test_paid_release_on_prism_is_marked_and_prints_no_beam_logs(tmp_path, prism, capfd):
    ledger, argv = paid_by(job_flags(tmp_path), tmp_path)
    assert release_synthetic_database.main([*argv, *prism]) == 0
    assert_paid_and_released(ledger, tmp_path)
    _, err = capfd.readouterr()
    warning, *lines = err.splitlines()
    assert warning.startswith("warning: epsilon 1000 protects little: ")
    assert all(re.match(r"\[ +[0-9.]+ s\] ", line) for line in lines), err


def test_rejects_saving_a_run_on_engines(tmp_path, engine, capfd):
    state = f"--state={tmp_path / 'state'}"
    assert answer_queries.main([*answer_flags(tmp_path), state, *engine]) == 2
    _, err = capfd.readouterr()
    assert re.fullmatch(
        r"error: --state: '.*/state' cannot be combined with --runner [^\n]+\n", err
    ), err
    assert not (tmp_path / "state").exists() and not (tmp_path / "out").exists()


FAILED = "the job failed with RuntimeError"


@pytest.mark.parametrize(
    ("engine_name", "owner", "method", "line"),
    [
        ("flink", MarginalsAccumulator, "from_shards", FAILED),
        ("flink", LocalStore, "create_exclusively", "output: .* must be a directory that can be"),
        ("prism", MarginalsAccumulator, "from_shards", FAILED),
        ("prism", LocalStore, "create_exclusively", FAILED),
    ],
)
def test_failed_job_publishes_nothing_and_shows_no_records(
    engine_name, owner, method, line, request, tmp_path, flink_log, monkeypatch, capfd
):
    tried: list[Any] = []
    # Flink's tracebacks show the line that raises, so the error is named by a variable.
    error = OSError if engine_name == "flink" else ArithmeticError

    def fail(*_: Any) -> Any:
        tried.append(method)
        raise error(SECRET)

    engine = request.getfixturevalue(engine_name)
    ledger, argv = paid_by(job_flags(tmp_path), tmp_path)
    breaks_later(monkeypatch)
    monkeypatch.setattr(owner, method, fail)
    assert release_synthetic_database.main([*argv, *engine]) == 1
    assert tried
    (entry,) = ledger.entries("people")
    assert entry.state == "submitted"
    assert everything_under(tmp_path / "out") == []
    out, err = capfd.readouterr()
    assert out == "" and len(re.findall(rf"^error: {line}[^\n]*$", err, re.M)) == 1, err
    log = flink_log.read_text(encoding="utf-8") if engine_name == "flink" else ""
    assert SECRET not in err + log
    assert engine_name == "flink" or "Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_during_write_leaves_no_draft_on_flink(tmp_path, job_server_jar, number):
    flags = [
        "--runner=FlinkRunner",
        "--flink_master=[local]",
        f"--flink_job_server_jar={job_server_jar}",
    ]
    assert_stops(tmp_path, number, flags)


@pytest.mark.parametrize("engine", ["prism", "flink"])
@pytest.mark.parametrize("kind", KINDS)
def test_counters_of_neighbours_are_functions_of_the_release(kind, engine, tmp_path, request):
    flags = request.getfixturevalue(engine)
    for number, people in enumerate(NEIGHBOURS):
        out = tmp_path / str(number)
        assert counters(run(kind, people, out, flags)) == expected(out)
