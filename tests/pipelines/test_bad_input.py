"""Every bad input costs one line that names flag, value and condition, and exit code 2."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import job_flags, refused_line
from pytest import CaptureFixture

from pipelines.release_synthetic_database import main

ROOT = Path(__file__).resolve().parent.parent.parent
HUGE = {f"a{i}": 100 for i in range(8)}


def refused(capfd: CaptureFixture[str], folder: Path, argv: list[str], *patterns: str) -> None:
    refused_line(main, argv, capfd, *patterns, folder=folder)


@pytest.mark.parametrize(
    ("flag", "value", "pattern"),
    [
        ("epsilon", "0", r"--epsilon: 0(\.0)? is not valid: must be"),
        ("epsilon", "-1", r"--epsilon: -1(\.0)? is not valid: must be"),
        ("epsilon", "nan", r"--epsilon: nan is not valid: must be"),
        ("epsilon", "inf", r"--epsilon: inf is not valid: must be"),
        ("epsilon", "one", r"--epsilon: 'one' is not valid: must be a number"),
        ("delta", "1", r"--delta: 1(\.0)? is not valid: must be"),
        ("delta", "-1e-9", r"--delta: -1e-09 is not valid: must be"),
        ("delta", "nan", r"--delta: nan is not valid: must be"),
        ("neighboring", "replace", r"--neighboring: 'replace' is not valid.*replace_one"),
        ("num_records", "0", r"--num_records: 0 is not valid: must be"),
        ("num_records", "-5", r"--num_records: -5 is not valid: must be"),
        ("num_records", "many", r"--num_records: 'many' is not valid: must be .*'noisy'"),
        ("num_rounds", "many", r"--num_rounds: 'many' is not valid: must be .*'annealed'"),
        ("num_rounds", "0", r"--num_rounds: 0 is not valid: must be"),
        ("stop_below", "2", r"--stop_below: 2(\.0)? is not valid: must be"),
        ("stop_below", "0.1", r"--stop_below: 0.1 is not valid: must be left out without"),
        ("mechanism", "mwen", r"--mechanism: 'mwen' is not valid.*'mwem'"),
        ("calibration", "loose", r"--calibration: 'loose' is not valid"),
        ("max_records_per_unit", "2", r"--max_records_per_unit: 2 is not valid"),
        ("privacy_unit", "", r"--privacy_unit: '' is not valid"),
        ("workload", "marginals:agee,sex", r"--workload: .*'agee'.*'age'"),
        ("workload", "marginals:9", r"--workload: .*9"),
        ("workload", "marginals:", r"--workload: "),
        ("workload", "conjunctions:2", r"--workload: .*marginals"),
        ("input_format", "json", r"--input_format: 'json' is not valid"),
        ("runner", "NoSuchRunner", r"--runner: 'NoSuchRunner' is not valid: must be"),
        ("output", "hdfs://host/folder", r"--output: 'hdfs://host/folder' is not valid"),
        ("input", "nobody*.parquet", r"--input: 'nobody\*\.parquet' is not valid: must"),
    ],
)
def test_refuses_value_out_of_range(tmp_path, capfd, flag, value, pattern):
    refused(capfd, tmp_path, job_flags(tmp_path, **{flag: value}), pattern)


HOUSEHOLD = {"privacy_unit": "household"}
BOUND = "max_records_per_unit"


@pytest.mark.parametrize(
    ("flags", "pattern"),
    [
        *(({**HOUSEHOLD, BOUND: text}, f"--{BOUND}: .*must be") for text in ("0", "-1", "1.5")),
        ({**HOUSEHOLD, BOUND: "nan"}, f"--{BOUND}: .*must be"),
        (HOUSEHOLD, f"--{BOUND} is required"),
        (
            {"neighboring": "replace_one", "num_records": "noisy"},
            r"--num_records: 'noisy' is not valid: must be",
        ),
        ({"mechanism": "gaussian", "delta": "0"}, r"--delta: 0(\.0)? is not valid: must be"),
        (
            {"mechanism": "laplace", "num_rounds": "3"},
            r"error: --num_rounds applies only to --mechanism mwem\n",
        ),
    ],
    ids=str,
)
def test_refuses_invalid_combination_of_flags(tmp_path, capfd, flags, pattern):
    refused(capfd, tmp_path, job_flags(tmp_path, **flags), pattern)


@pytest.mark.parametrize("flag", ["epsilon", "delta", "neighboring", "privacy_unit", "num_records"])
def test_no_privacy_parameter_has_a_default(tmp_path, capfd, flag):
    refused(capfd, tmp_path, job_flags(tmp_path, **{flag: None}), f"--{flag} is required: ")


@pytest.mark.parametrize("file_format", ["parquet", "avro"])
def test_refuses_input_of_another_format(tmp_path, capfd, file_format):
    path = tmp_path / f"junk.{file_format}"
    path.write_bytes(b"this is no container of records" * 10)
    argv = job_flags(tmp_path, input=str(path))
    refused(capfd, tmp_path, argv, r"--input: '.*junk\.\w+' is not valid: must")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_refuses_unreadable_input(tmp_path, capfd):
    argv = job_flags(tmp_path)
    (tmp_path / "people.parquet").chmod(0)
    refused(capfd, tmp_path, argv, r"--input: '.*people\.parquet' is not valid: must")


def test_refuses_input_with_unknown_extension(tmp_path, capfd):
    path = tmp_path / "people.txt"
    path.write_text("age\n1\n")
    refused(capfd, tmp_path, job_flags(tmp_path, input=str(path)), r"--input(_format)?: .*must")


@pytest.mark.parametrize("file_format", ["parquet", "avro", "csv"])
def test_refuses_attribute_without_a_column(tmp_path, capfd, file_format):
    domain = {"agee": 100, "sex": 2}
    argv = job_flags(tmp_path, domain=domain, file_format=file_format)
    refused(capfd, tmp_path, argv, r"'agee'", r"'age'")


def test_csv_file_without_header_shows_no_value_of_its_first_record(tmp_path, capfd):
    argv = job_flags(tmp_path, file_format="csv")
    path = tmp_path / "people.csv"
    path.write_text("4711,Jane Roe\n" + path.read_text().partition("\n")[2])
    refused(capfd, tmp_path, argv, r"--domain: .*must be a column of .*first line must name")
    assert main(argv) == 2
    assert not re.search("4711|Jane", capfd.readouterr().err)


@pytest.mark.parametrize("file_format", ["parquet", "avro", "csv"])
def test_refuses_privacy_unit_that_is_not_a_column(tmp_path, capfd, file_format):
    argv = job_flags(
        tmp_path, file_format=file_format, privacy_unit="houshold", max_records_per_unit="1"
    )
    refused(capfd, tmp_path, argv, r"--privacy_unit: 'houshold' is not valid", r"'household'")


def test_refusal_of_too_large_domain_states_its_size_and_what_would_fit(tmp_path, capfd):
    argv = job_flags(tmp_path, domain=HUGE, calibration="textbook", num_records="9")
    refused(capfd, tmp_path, argv, r"--domain: '10\^16.0 cells' ", r"2\^26", "the first 3 of its 8")


def test_refuses_workload_with_too_large_junction_tree(tmp_path, capfd):
    for mechanism in ("gaussian", "laplace"):
        argv = job_flags(tmp_path, domain=HUGE, mechanism=mechanism)
        refused(capfd, tmp_path, argv, r"--workload: 'a junction tree of 10\^16.0 cells'", "mwem")


def test_error_names_a_single_attribute_that_is_too_large(tmp_path, capfd):
    argv = job_flags(tmp_path, domain={"age": 10**8, "sex": 2})
    refused(capfd, tmp_path, argv, r"--domain: 'age of 100,000,000 codes'", "use fewer")


@pytest.mark.parametrize("file", ["out/card.json", "out"])
def test_refuses_output_that_contains_a_release_or_is_a_file(tmp_path, capfd, file):
    argv = job_flags(tmp_path)
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("{}")
    refused(capfd, tmp_path, argv, r"--output: '.*out' is not valid: must")


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ('{"attributes": [\n  {"name": "age",}]}', r"line 2.*column"),
        ("", r"line 1.*column"),
        ('{"age": 0}', r"0.*must"),
        ('{"age": 2, "age": 3}', r"age"),
        ('{"attributes": [{"name": "age", "type": "numerical", "edges": [0, 1]}]}', r"numeric"),
        ("[]", r"must"),
    ],
)
def test_refuses_malformed_domain(tmp_path, capfd, text, pattern):
    argv = job_flags(tmp_path)
    (tmp_path / "domain.json").write_text(text)
    refused(capfd, tmp_path, argv, pattern)


def test_refuses_missing_domain_file(tmp_path, capfd):
    argv = job_flags(tmp_path)
    (tmp_path / "domain.json").rename(tmp_path / "elsewhere.json")
    refused(capfd, tmp_path, argv, r"--domain: '.*domain\.json' is not valid: must be a file")


def test_refuses_binary_domain_file(tmp_path, capfd):
    argv = job_flags(tmp_path)
    (tmp_path / "domain.json").write_bytes(b'{"age": \xff}')
    refused(capfd, tmp_path, argv, r"--domain: '.*domain\.json' is not valid: must be UTF-8")


def test_domain_file_may_start_with_a_byte_order_mark(tmp_path, capfd):
    argv = [*job_flags(tmp_path), "--validate_only"]
    path = tmp_path / "domain.json"
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert main(argv) == 0, capfd.readouterr().err


@pytest.mark.slow
def test_refusal_in_a_new_process_prints_only_one_line(tmp_path):
    argv = job_flags(tmp_path, epsilon="0")
    result = subprocess.run(
        [sys.executable, "-m", "pipelines.release_synthetic_database", *argv],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert result.returncode == 2
    assert result.stdout == ""
    assert re.fullmatch(r"error: --epsilon: 0(\.0)? is not valid: [^\n]+\n", result.stderr)
