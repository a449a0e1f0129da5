"""A newcomer's first minutes: the wheel, installed without extras, far from any checkout.

Everything is typed as README has it. Nothing that the tests themselves need is there, and whatever
ends with another exit code than 0, or says a word that is not ours, fails.
"""

import json
import pathlib
import shlex
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from jobs import write_table

pytestmark = [pytest.mark.wheel, pytest.mark.part]
DOMAIN: dict[str, Any] = {
    "attributes": [
        {"name": "children", "type": "integer", "min": 0, "max": 4},
        {"name": "weight", "type": "numeric", "edges": [0, 50.5, 75, 200]},
        {"name": "sex", "type": "categorical", "values": ["Female", "Male"]},
        {"name": "smokes", "type": "boolean"},
        {
            "name": "drinks",
            "type": "boolean",
            "true_values": ["yes"],
            "false_values": ["no"],
            "nullable": True,
            "null_values": ["NA"],
            "case": "ignore",
            "trim": True,
        },
    ]
}
DECLARED = "--domain domain.json"
# False, true and null, as people write them.
DRINKS = ("no", "YES", "NA", " No", "yes ")
# So large an epsilon that no noise hides a record that was lost.
PROMISE = {
    "epsilon": "1000",
    "delta": "1e-9",
    "neighboring": "add_or_remove_one",
    "privacy_unit": "person",
    "max_records_per_unit": "1",
}


def people() -> pa.Table:
    """300 people: an integer, a float, a text, a boolean, words for one, and who it is."""
    generator = np.random.default_rng(7)
    return pa.table(
        {
            "person": pa.array(np.arange(300)),
            "children": pa.array(generator.integers(0, 5, 300)),
            "weight": pa.array(generator.uniform(0, 200, 300)),
            "sex": pa.array(np.array(["Female", "Male"])[generator.integers(0, 2, 300)]),
            "smokes": pa.array(generator.integers(0, 2, 300).astype(bool)),
            "drinks": pa.array(np.array(DRINKS)[generator.integers(0, 5, 300)]),
        }
    )


@pytest.fixture(scope="module", autouse=True)
def files(home) -> None:
    """Data and a budget, where the commands are typed."""
    elsewhere = home.folder / "elsewhere"
    (elsewhere / "domain.json").write_text(json.dumps(DOMAIN), encoding="utf-8")
    (elsewhere / "queries.jsonl").write_text(
        '{"conjunction": {"sex": "Male", "smokes": true}}\n'
        '{"prefix": {"attribute": "children", "high": 2}}\n',
        encoding="utf-8",
    )
    (elsewhere / "keys.txt").write_text("Female\nMale\n", encoding="utf-8")
    budget = {name: PROMISE[name] for name in ("delta", "privacy_unit", "neighboring")}
    declared = flags(declare="people", epsilon="2000", **budget)
    home.run("beam-dp", "ledger", "budgets.sqlite", *declared)
    for file_format in ("parquet", "csv", "avro"):
        write_table(elsewhere, people(), file_format)


def flags(**values: str) -> list[str]:
    return [word for name, value in values.items() for word in (f"--{name}", value)]


def test_installs_only_declared_packages(home):
    code = (
        "import importlib.util as u, beam_dp, beam_dp.pipelines, beam_dp.hashing.evaluation as b;"
        "print(beam_dp.__file__, b.active_backend(), *map(u.find_spec, {!r}))"
    )
    names = ("polars", "pytest", "pipelines", "psycopg", "boto3")
    file, backend, *others = home.run("python", "-c", code.format(names)).split()
    assert pathlib.Path(file).is_relative_to(home.folder / "environment")
    assert backend != "numpy", "the kernel was not compiled"
    assert others == ["None"] * len(names)


def test_checks_a_domain_on_a_sample(home):
    printed = home.run("beam-dp", "check-domain", *flags(domain="domain.json", sample="people.csv"))
    assert "' No' -> no" in printed and "'NA' -> null" in printed
    assert printed.endswith("0 of 300 rows are left out of a release\n")


@pytest.mark.parametrize(
    ("output", "job"),
    [
        ("marginals", flags(domain="domain.json", workload="marginals:2", input="people.parquet")),
        ("ages", flags(domain="domain.json", workload="intervals:weight", input="people.avro")),
        (
            "keys",
            flags(
                max_sparsity="2", num_keys="5", largest_count="90", size="64",
                key="children", input="people.parquet",
            ),
        ),
    ],
)  # fmt: skip
def test_command_that_plan_prints_can_be_run(home, output, job):
    asked = flags(**PROMISE, num_records="300", output=output)
    line = home.run("beam-dp", "plan", *job, *asked).splitlines()[-1]
    assert line.startswith("beam-dp ")
    home.run(*shlex.split(line))
    assert "epsilon" in home.run("beam-dp", "describe", output)


@pytest.mark.parametrize(
    ("job", "asked"),
    [
        (
            f"release-intervals --input people.parquet {DECLARED} --attribute children",
            "answer OUTPUT --interval 1 3",
        ),
        (
            f"answer-queries --input people.avro {DECLARED} --queries queries.jsonl"
            " --num_records noisy",
            "describe OUTPUT",
        ),
        (
            "release-projection --input people.csv --key sex --max_sparsity 2 --size 64"
            " --ledger budgets.sqlite --dataset_id people",
            "answer OUTPUT --sparse keys.txt",
        ),
    ],
)
def test_release_of_every_program_can_be_asked(home, job, asked):
    output = job.partition(" ")[0]
    home.run("beam-dp", *job.split(), *flags(output=output, **PROMISE))
    assert home.run("beam-dp", *asked.replace("OUTPUT", output).split())
    assert "--ledger" not in job or "released" in home.run("beam-dp", "ledger", "budgets.sqlite")


def test_windows_of_files_are_released(home):
    folder = home.folder / "elsewhere" / "landing"
    folder.mkdir()
    rows = people()
    for name, second in (("t", 1_000_000_003), ("came", 1_000_000_004)):
        rows = rows.append_column(name, pa.array([second] * 300))
    write_table(folder, rows, "parquet")
    unit = {"max_windows_per_unit": "1", "protected_windows": "2"}
    argv = flags(
        input="landing/*.parquet", domain="domain.json", workload="marginals:1",
        event_time="t", arrival="came", start="2001-09-09T01:46:40Z", window="5s",
        num_windows="2", grace="5s", output="windows", **unit, **{**PROMISE, "epsilon": "5000"},
    )  # fmt: skip
    printed = home.run("beam-dp", "release-windows", *argv, "--replay").splitlines()
    for line in printed[-2:]:
        home.run(*shlex.split(line))
    asked = ["--windows", "0:2", "--marginal", "sex", "--json"]
    (line,) = json.loads(home.run("beam-dp", "answer", "windows", *asked))
    assert sum(line["records"]) == pytest.approx(300, abs=5)


def test_beam_yaml_pipeline_needs_no_extra(home):
    path = str(home.examples() / "yaml" / "intervals.yaml")
    home.run("beam-dp", "run-yaml", "--yaml_pipeline_file", path)
    home.run("beam-dp", "answer", "out/intervals", "--interval", "30", "39")


def test_missing_extra_is_named(home):
    assert "beam_dp[gcs]" in home.refused("beam-dp", "describe", "gs://bucket/folder")
    assert "beam_dp[s3]" in home.refused("beam-dp", "describe", "s3://bucket/folder")
