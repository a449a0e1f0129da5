"""The warning after a release, computed from its card and from a number that goes nowhere else.

Left-out counts of the programs are here, too: they are the answer to the warning.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from jobs import interval_flags, job_flags, people
from noise_sources import NoNoise
from tiny import ADD, PURE, domain_of, promise, summary, workload_of

import beam_dp as dp
from beam_dp.cli.main import main as cli
from beam_dp.domain.files import domain_from_json
from beam_dp.mechanisms.intervals.plan import plan_intervals, release_intervals
from beam_dp.mechanisms.marginals.measure_all import MWEM, Laplace
from beam_dp.mechanisms.marginals.plan import Mechanism
from beam_dp.mechanisms.small_db.small_db import SmallDB
from pipelines import program
from pipelines.program import warning_of_number
from pipelines.release_intervals import main as main_of_intervals
from pipelines.release_synthetic_database import main

# No other code writes this number.
EXPECTED = 90_210_457
TRACES = (b"90210457", b"90,210,457", EXPECTED.to_bytes(4, "little"), EXPECTED.to_bytes(4, "big"))
MECHANISMS: list[Mechanism] = [
    MWEM(),
    MWEM(num_rounds=2),
    MWEM(num_rounds="annealed"),
    Laplace(),
    SmallDB(size=3),
]


def released(mechanism: Mechanism, total: int, num_records: Any = "noisy") -> dp.SyntheticDatabase:
    """Without noise; the card states it all the same."""
    domain = domain_of(2, 3)
    guarantee = promise(ADD, PURE, 1.0)
    plan = mechanism.plan(domain, workload_of(domain, 2), guarantee, num_records)
    counts = np.zeros(6, np.int64)
    counts[1] = total
    return mechanism.release(plan, summary(plan, counts), NoNoise())


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda each: repr(each)[:40])
def test_warns_if_number_is_near_0_or_far_from_the_expected(mechanism):
    none, many = released(mechanism, 0), released(mechanism, 10_000)
    found = many.noisy_number()
    assert found is not None
    number, error = found
    assert number == pytest.approx(10_000)
    assert 1 < error < 500
    near, far = math.ceil(10_000 - 2.9 * error), math.ceil(10_000 + 3.1 * error)
    assert warning_of_number(many, None) is None
    assert warning_of_number(many, near) is None
    assert "within 3 standard errors" in str(warning_of_number(none, None))
    warning = str(warning_of_number(many, far))
    assert f"is 10,000 (standard error {error:,.3g}): more than 3 standard errors" in warning
    assert f"below --expect_records {far:,}; many records may have been left out" in warning
    assert "\n" not in warning
    assert "check-domain" in warning and "--count_left_out" in warning


def test_warning_about_a_large_number_suggests_repeated_records():
    warning = str(warning_of_number(released(MWEM(), 10_000), 500))
    assert "more than 3 standard errors above --expect_records 500;" in warning
    assert "twice" in warning and "left out" not in warning
    warning = str(warning_of_number(released(MWEM(), 2), 1))
    assert "within 3 standard errors of 0" in warning and "twice" not in warning


def test_warning_names_records_that_interval_release_does_not_count():
    attribute = {"name": "a", "type": "integer", "min": 0, "max": 7, "nullable": True}
    (nullable,) = domain_from_json({"attributes": [attribute]}).attributes
    plan = plan_intervals(8, promise(ADD, PURE, 1.0), "windows")
    release = release_intervals(plan, np.zeros(8, np.int64), NoNoise())
    assert "counted in no interval" not in str(warning_of_number(release, 9000))
    release = dataclasses.replace(release, attribute=nullable)
    assert "counted in no interval: other or null" in str(warning_of_number(release, 9000))


@pytest.mark.parametrize("mechanism", [MWEM(), Laplace(), SmallDB(size=3)], ids=repr)
def test_no_warning_if_the_number_is_public(mechanism):
    release = released(mechanism, 0, 5000)
    assert release.noisy_number() is None
    assert warning_of_number(release, 4) is None


@pytest.mark.parametrize("strategy", ["windows", "textbook_tree", "histogram"])
def test_interval_release_has_a_noisy_number_and_warns_about_it(strategy):
    plan = plan_intervals(8, promise(ADD, PURE, 1.0), strategy)
    for total, warns in ((0, True), (4000, False)):
        counts = np.zeros(8, np.int64)
        counts[3] = total
        release = release_intervals(plan, counts, NoNoise())
        found = release.noisy_number()
        assert found is not None and found[0] == pytest.approx(total)
        assert (warning_of_number(release, None) is not None) == warns
        assert "below --expect_records 9,000" in str(warning_of_number(release, 9000))


class Unpicklable(int):
    """Fails any job that takes it along."""

    def __reduce__(self) -> Any:
        raise AssertionError("the expected number left the program")


def everything_outside(num_records: int = 300) -> pa.Table:
    """All records fail at ``smokes``, and some already at ``sex``."""
    table = people(num_records)
    smokes = pa.array(["yes" if i % 2 else "no" for i in range(num_records)])
    sex = pa.array(["Female" if i % 3 else "?" for i in range(num_records)])
    return table.set_column(2, "sex", sex).set_column(3, "smokes", smokes)


@pytest.mark.job
def test_expected_number_is_shown_only_in_the_terminal(tmp_path, monkeypatch, capfd):
    url = str(tmp_path / "ledger.sqlite")
    dp.Ledger(url).declare("visits", 10, 1e-9, "record", "add_or_remove_one")
    read = program.read_expected
    monkeypatch.setattr(program, "read_expected", lambda *given: Unpicklable(read(*given) or 0))
    seen: list[bytes] = []
    run = beam.Pipeline.run

    def watched(self: beam.Pipeline, *arguments: Any, **named: Any) -> Any:
        seen.append(self.to_runner_api().SerializeToString())
        seen.append(repr(self.options.get_all_options()).encode())
        seen.append(repr(self.options).encode())
        return run(self, *arguments, **named)

    monkeypatch.setattr(beam.Pipeline, "run", watched)
    flags = job_flags(
        tmp_path,
        everything_outside(),
        epsilon="10",
        workload="marginals:1",
        ledger=url,
        dataset_id="visits",
        expect_records=str(EXPECTED),
    )
    assert main([*flags, "--count_left_out"]) == 0
    out, err = capfd.readouterr()
    (line,) = [line for line in err.splitlines() if "warning" in line]
    assert re.match(r"warning: the noisy number of records is \d+ \(standard .* of 0", line)
    assert f"more than 3 standard errors below --expect_records {EXPECTED:,}" in line
    assert "beam-dp describe" in line
    others = err.replace(line, "").encode()
    assert len(seen) == 3
    for data in (*seen, out.encode(), others):
        assert not [trace for trace in TRACES if trace in data]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"card.json", "ledger.sqlite"} <= {path.name for path in files}
    for path in files:
        assert not [trace for trace in TRACES if trace in path.read_bytes()], path

    # The payment is one entry, whose two parts its parameters and the card tell alike.
    (entry,) = dp.Ledger(url).entries("visits")
    release = dp.read_release(str(tmp_path / "out"))
    assert isinstance(release, dp.SyntheticDatabase) and release.left_out is not None
    assert (entry.state, entry.guarantee) == ("released", release.guarantee)
    assert entry.loss.epsilon is None or entry.loss.epsilon <= 10
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert card["schema_version"] == 2
    assert card["left_out"]["budget"] == entry.parameters["left_out"]["budget"]
    assert card["left_out"]["budget"]["release"] == {"epsilon": 9.5, "delta": 1e-9}
    left_out = release.left_out
    assert abs(left_out.counts["sex"] - 100) <= 100  # 50 times the scale: never by chance
    assert abs(left_out.counts["smokes"] - 200) <= 100
    assert abs(left_out.counts["age"]) <= 100

    assert cli(["describe", str(tmp_path / "out")]) == 0
    shown = " ".join(capfd.readouterr().out.split())
    assert (
        f"{left_out.total:,} records outside the domain (a noisy count with standard error" in shown
    )
    assert f"attribute smokes {left_out.counts['smokes']:,}" in shown
    assert "epsilon 9.5, delta 1e-09 for the release; epsilon 0." in shown


@pytest.mark.job
def test_no_warning_if_the_number_is_as_expected(tmp_path, capfd):
    flags = interval_flags(tmp_path, expect_records="500")
    assert main_of_intervals([*flags, "--count_left_out"]) == 0
    err = capfd.readouterr().err
    assert err.count("warning: ") == err.count("warning: epsilon 1000 protects little") == 1
    release = dp.read_release(str(tmp_path / "out"))
    assert isinstance(release, dp.IntervalRelease) and release.left_out is not None
    assert abs(release.left_out.counts["age"]) <= 40
    assert cli(["describe", str(tmp_path / "out")]) == 0
    assert "records outside the domain" in " ".join(capfd.readouterr().out.split())


@pytest.mark.job
@pytest.mark.parametrize("program", [main, main_of_intervals])
def test_validation_shows_both_parts_of_the_budget(tmp_path, capfd, program):
    make = job_flags if program is main else interval_flags
    flags = make(tmp_path, epsilon="2", delta="0")
    assert program([*flags, "--validate_only", "--json", "--count_left_out"]) == 0
    card = json.loads(capfd.readouterr().out)
    assert card["guarantee"]["epsilon"] == 2
    parts = card["left_out"]["budget"]
    assert parts["release"] == {"epsilon": 1.9, "delta": 0.0}
    assert parts["left_out"]["epsilon"] == pytest.approx(0.1)
    assert program([*flags, "--validate_only", "--json"]) == 0
    assert "left_out" not in json.loads(capfd.readouterr().out)


@pytest.mark.job
def test_program_releases_another_number_of_records(tmp_path, capsys):
    assert main(job_flags(tmp_path, num_synthetic_records="40")) == 0
    release = dp.read_release(tmp_path / "out", check_rows=True)
    assert release.num_records == 40
    assert release.represented == pytest.approx(len(people()), abs=2)
    capsys.readouterr()
    assert cli(["describe", str(tmp_path / "out")]) == 0
    described = " ".join(capsys.readouterr().out.split())
    assert "released 40 records; answers are scaled to all records" in described
    assert f"one row represents {release.represented / 40:,.6g} records" in described
    assert cli(["verify", str(tmp_path / "out")]) == 0
