"""Warnings about weak promises: every program and Python call shows them, once."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from engines.programs import PROGRAMS
from jobs import people, write_table
from yaml_jobs import RELEASE, build, read, step

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.guarantee import PrivacyWarning, _names_people
from beam_dp.summaries.histogram import Histogram

DOMAIN = dp.read_domain({"age": 3})
WORKLOAD = dp.marginals(DOMAIN, ways=1)
TOLD = "epsilon 11 protects little"


def with_epsilon(flags: list[str], epsilon: str) -> list[str]:
    return [f"--epsilon={epsilon}" if flag.startswith("--epsilon=") else flag for flag in flags]


def warnings_of(err: str, words: str = "") -> list[str]:
    return [line for line in err.splitlines() if line.startswith("warning: ") and words in line]


@pytest.mark.parametrize("more", [["--num_records=500"], ["--num_records=500", "--json"]])
def test_plan_warns_about_a_large_epsilon(capfd, more):
    flags = ['--domain={"age": 3}', "--workload=marginals:1", "--delta=0", "--epsilon=11"]
    unit = ["--neighboring=add_or_remove_one", "--privacy_unit=record"]
    assert main(["plan", *flags, *unit, *more]) == 0
    (line,) = warnings_of(capfd.readouterr().err)
    assert TOLD in line


def test_yaml_warns_about_a_large_epsilon(tmp_path):
    release = step("ReleaseSyntheticDatabase", output=str(tmp_path / "out"), **RELEASE)
    release["config"]["epsilon"] = 11
    spec = {"type": "chain", "transforms": [read(tmp_path), release]}
    with pytest.warns(PrivacyWarning, match=TOLD):
        build(beam.Pipeline(runner=FnApiRunner()), spec)


def promise(epsilon: float, unit: str = "record") -> dp.Guarantee:
    return dp.Guarantee(epsilon, 0.0, "add_or_remove_one", unit, 1)


def online(epsilon: float) -> Any:
    plan = dp.plan_private_mw(DOMAIN, promise(epsilon), 10, num_questions=1, max_updates=1)
    return dp.PrivateMW(plan, Histogram(DOMAIN, np.array([10, 0, 0])), NoiseSource())


def windows(epsilon: float) -> Any:
    horizon, unit = dp.Horizon(100, 10, 6, 5), dp.WindowUnit("record", 1, 1, 1)
    plan = dp.plan_window_tables(WORKLOAD, horizon, unit, epsilon, 0.0)
    return dp.ReleaseWindows(plan, "out", "0" * 32, "t", "t")


IN_PYTHON = {
    "in memory": lambda epsilon: dp.release(
        pa.table({"age": [1]}), DOMAIN, WORKLOAD, promise(epsilon)
    ),
    "transform": lambda epsilon: dp.ReleaseSyntheticDatabase(
        DOMAIN, WORKLOAD, promise(epsilon), dp.Laplace()
    ),
    "online": online,
    "windows": windows,
}


@pytest.mark.filterwarnings("error::beam_dp.privacy.guarantee.PrivacyWarning")
@pytest.mark.parametrize("name", IN_PYTHON)
def test_python_warns_about_a_large_epsilon(name):
    IN_PYTHON[name](10.0)
    with pytest.warns(PrivacyWarning, match=TOLD):
        IN_PYTHON[name](11.0)


def test_frame_with_a_person_column_warns_if_the_unit_is_the_record():
    table = pa.table({"age": [1], "patient_id": ["ann"]})
    with pytest.warns(PrivacyWarning, match="the column 'patient_id' seems to name people"):
        dp.release(table, DOMAIN, WORKLOAD, promise(1.0))


@pytest.mark.filterwarnings("error::beam_dp.privacy.guarantee.PrivacyWarning")
def test_no_warning_if_the_person_is_the_unit_or_the_column_is_released():
    table = pa.table({"age": [1], "patient_id": ["ann"], "visit_id": [7]})
    dp.release(table, DOMAIN, WORKLOAD, promise(1.0, "patient_id"))
    member = dp.read_domain({"member": 2})
    dp.release(pa.table({"member": [1]}), member, dp.marginals(member, ways=1), promise(1.0))


def test_program_hints_at_a_person_column_if_the_unit_is_the_record(tmp_path, capfd):
    table = people().rename_columns(["user_id", "age", "sex", "smokes"])
    program = PROGRAMS["release_synthetic_database"]
    flags = with_epsilon(program.flags(tmp_path), "1")
    write_table(tmp_path, table)  # in the place of that job's table
    assert program.main([*flags, "--validate_only"]) == 0
    (line,) = warnings_of(capfd.readouterr().err)
    assert "privacy_unit: 'record' protects single records" in line and "'user_id'" in line


def test_recognizes_column_names_that_identify_people():
    people = "person_id", "PassengerId", "userid", "patient", "ssn", "home email", "customer UUID"
    assert (*filter(_names_people, people),) == people
    assert [*filter(_names_people, ("visit_id", "id", "patient_age", "covid", ""))] == []
