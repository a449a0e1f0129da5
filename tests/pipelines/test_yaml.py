"""Beam YAML: the programs as transforms, refused in the same words, paid before they draw."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from jobs import DOMAIN, job_flags
from yaml_jobs import PROMISE, RELEASE, build, read, run, step

import beam_dp.yaml
from beam_dp.errors import InputError
from beam_dp.flags.flag import FlagError
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.releases.kinds import read_release, verify_release
from pipelines import release_synthetic_database, run_yaml

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = sorted((ROOT / "examples" / "yaml").glob("*.yaml"))


@pytest.mark.job
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs(example, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    output = tmp_path / "out"
    variables = json.dumps({"output": str(output)})
    assert run_yaml.main([f"--yaml_pipeline_file={example}", f"--jinja_variables={variables}"]) == 0
    assert [*output.rglob("card.json")]


def test_providers_are_all_transforms_and_examples_show_all_but_three():
    (provider,) = yaml.safe_load(Path(beam_dp.yaml.PROVIDERS).read_text())
    given = {name: getattr(beam_dp.yaml, name) for name in dir(beam_dp.yaml)}
    names = {name for name, each in given.items() if hasattr(each, "expand")}
    assert provider["transforms"] == {name: f"beam_dp.yaml.{name}" for name in names}
    shown = {name for path in EXAMPLES for name in re.findall(r" type: (\w+)", path.read_text())}
    assert names - shown == {"MarginalRows", "ReadKafka", "ReadRows"}


@pytest.mark.job
def test_yaml_release_equals_command_line_release(tmp_path):
    flags = {name: str(each) for name, each in PROMISE.items()}
    argv = job_flags(tmp_path, **flags, output=str(tmp_path / "program"))
    assert release_synthetic_database.main(argv) == 0
    run(read(tmp_path), step("ReleaseSyntheticDatabase", output=str(tmp_path / "yaml"), **RELEASE))
    program, of_yaml = (
        json.loads((tmp_path / folder / "card.json").read_text()) for folder in ("program", "yaml")
    )
    for public in ("kind", "mechanism", "guarantee", "domain", "workload", "parameters", "noise"):
        assert of_yaml[public] == program[public]


@pytest.mark.job
def test_two_files_discover_a_domain_and_release_with_it(tmp_path):
    """The first pays for both; the second uses the domain once, and then pays again."""
    ledger = Ledger(str(tmp_path / "budgets.sqlite"))
    ledger.declare("people", 2.5, 0, "household", "add_or_remove_one")
    fields = {**RELEASE, "domain": OPEN, "workload": "marginals:1", "ledger": ledger.name}
    fields |= {"dataset_id": "people", "output": str(tmp_path / "out")}
    run(read(tmp_path), step("ReleaseDomain", **fields))
    assert [*tmp_path.glob("out/domain/card.json")] and not [*tmp_path.glob("out/card.json")]
    run(read(tmp_path), step("ReleaseSyntheticDatabase", **fields))
    release = read_release(tmp_path / "out")
    assert verify_release(release).holds
    assert release.plan["ledger_release"] == "people/1" and len(ledger.entries("people")) == 1
    (tmp_path / "out" / "card.json").rename(tmp_path / "card.json")
    for path in tmp_path.glob("out/*.avro"):
        path.unlink()
    run(read(tmp_path), step("ReleaseSyntheticDatabase", **fields))
    assert read_release(tmp_path / "out").plan["ledger_release"] == "people/2"


@pytest.mark.job
def test_releases_rows_from_another_source(tmp_path):
    elements = [{"who": i // 2, "years": i % 100} for i in range(60)]
    fields = {"household": "who", "age": "years"}
    run(
        step("Create", elements=elements),
        step("MapToFields", fields=fields),
        step(
            "ReleaseIntervals",
            **{**PROMISE, "epsilon": 1e6},
            domain={"age": 100},
            attribute="age",
            strategy="histogram",
            output=str(tmp_path / "out"),
        ),
        # What comes out is a row, for whatever follows.
        step("AssertEqual", elements=[{"directory": str(tmp_path / "out")}]),
    )
    answer = read_release(tmp_path / "out").answer([10], [49])
    assert round(float(answer.values[0])) == 40


def test_yaml_and_command_line_refuse_values_with_the_same_message(tmp_path):
    texts = {name: str(each) for name, each in RELEASE.items()} | {"domain": json.dumps(DOMAIN)}
    for field, value, text in (
        ("epsilon", 0, "0.0"),
        ("epsilon", "one", "one"),
        ("epsilon", float("nan"), "nan"),
        ("neighboring", "replace", "replace"),
        ("num_rounds", 1.5, "1.5"),
        ("workload", "marginals:agee,sex", "marginals:agee,sex"),
        ("domain", {"age": -1}, '{"age": -1}'),
        ("dataset_id", "people", "people"),
    ):
        with pytest.raises((FlagError, InputError)) as program:
            argv = [f"--{name}={each}" for name, each in (texts | {field: text}).items()]
            release_synthetic_database.parse_arguments([*argv, "--input=x.csv", "--output=out"])
        with pytest.raises(ValueError) as refused:
            fields = {**RELEASE, field: value}
            beam_dp.yaml.ReleaseSyntheticDatabase(output=str(tmp_path / "out"), **fields)
        expected = " ".join(str(program.value).split())
        assert str(refused.value) == re.sub(r"--([a-z])", r"\1", expected)


OPEN = {"attributes": [{"name": "age", "type": "numeric", "discover": {"bins": 5}}]}


def test_yaml_refuses_an_output_of_bad_records(tmp_path):
    fields = {**RELEASE, "output": str(tmp_path / "out"), "error_handling": {"output": "bad"}}
    release = {**step("ReleaseSyntheticDatabase", **fields), "name": "release", "input": "read"}
    bad = {"type": "LogForTesting", "input": "release.bad"}
    transforms = [{**read(tmp_path), "name": "read"}, release, bad]
    with pytest.raises(ValueError, match=r"error_handling: .* must not be given: records"):
        build(beam.Pipeline(), {"type": "composite", "transforms": transforms})


def test_reads_glob_in_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("x\n1\n")
    monkeypatch.chdir(tmp_path)
    beam_dp.yaml.ReadRecords(input="*.csv")


@pytest.mark.job
def test_pays_from_ledger_once_and_only_if_pipeline_can_be_built(tmp_path):
    url = str(tmp_path / "ledger.sqlite")
    ledger = Ledger(url)
    ledger.declare("people", 2.5, 0.0, "household", "add_or_remove_one")
    paid = {**RELEASE, "ledger": url, "dataset_id": "people"}
    records = read(tmp_path)
    # A column that the file has not, an output that exists: nothing is spent.
    wrong = {**paid, "domain": {"agee": 3}, "workload": "marginals:1"}
    with pytest.raises(ValueError, match="domain: 'agee' is not valid"):
        run(records, step("ReleaseSyntheticDatabase", output=str(tmp_path / "out"), **wrong))
    with pytest.raises(ValueError, match=r"output: .* is not valid"):
        run(records, step("ReleaseSyntheticDatabase", output=str(tmp_path), **paid))
    assert ledger.entries("people") == []
    run(records, step("ReleaseSyntheticDatabase", output=str(tmp_path / "out"), **paid))
    (entry,) = ledger.entries("people")
    assert read_release(tmp_path / "out").plan["ledger_release"] == entry.release_id
    # One more of twice the size does not fit.
    with pytest.raises(ValueError, match="epsilon"):
        more = {**paid, "epsilon": 2}
        run(records, step("ReleaseSyntheticDatabase", output=str(tmp_path / "more"), **more))
    assert len(ledger.entries("people")) == 1 and not (tmp_path / "more").exists()


@pytest.mark.job
@pytest.mark.parametrize("mechanism", ["private_mw", "laplace"])
def test_accepts_inline_queries_and_reports_refused_queries(tmp_path, caplog, mechanism):
    queries = [{"conjunction": {"sex": "Male"}}, {"conjunction": {"sexx": "Male"}}]
    fields = {name: value for name, value in RELEASE.items() if name != "workload"}
    answer = step(
        "AnswerQueries",
        queries=queries,
        mechanism=mechanism,
        output=str(tmp_path / "out"),
        **fields,
    )
    with caplog.at_level(logging.WARNING, "beam_dp.yaml"):
        run(read(tmp_path), answer)
    assert "queries: line 2: query: 'sexx' is not an attribute" in caplog.text
    assert "--queries" not in caplog.text
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert (card["num_answers"], card["num_refused"]) == (1, 1)


def rows_in(folder: Path, name: str) -> list[dict[str, Any]]:
    """The rows that a job wrote, in an order of their own."""
    table = pa.concat_tables(pq.read_table(path) for path in folder.glob(f"{name}*"))
    return table.sort_by([("age", "ascending"), ("sex", "ascending")]).to_pylist()


@pytest.mark.job
def test_reads_rows_of_a_new_or_an_existing_release(tmp_path):
    output = str(tmp_path / "out")
    columns = step("MapToFields", language="python", fields={"age": "age", "sex": "sex"})

    run(
        read(tmp_path),
        step("ReleaseSyntheticDatabase", output=output, **RELEASE),
        step("SyntheticRows"),
        columns,
        step("WriteToParquet", path=str(tmp_path / "first")),
    )
    run(
        step("ReadRows", release=output), columns,
        step("WriteToParquet", path=str(tmp_path / "second")),
    )  # fmt: skip
    first, second = (rows_in(tmp_path, name) for name in ("first", "second"))
    assert first == second and len(first) == read_release(output).num_records


@pytest.mark.job
def test_marginal_rows_of_a_new_or_an_existing_release_are_equal(tmp_path):
    output, fields = str(tmp_path / "out"), {"attributes": ["sex", "age"]}
    release = step("ReleaseSyntheticDatabase", output=output, **RELEASE)
    path = {name: str(tmp_path / name) for name in ("first", "second")}
    write = {name: step("WriteToParquet", path=each) for name, each in path.items()}
    run(read(tmp_path), release, step("MarginalRows", **fields), write["first"])
    run(step("ReadRows", release=output, **fields), write["second"])
    first, second = (rows_in(tmp_path, name) for name in ("first", "second"))
    assert first == second and len(first) == 4 * 2
    assert {row["draw_id"] for row in first} == {read_release(output).draw_id}


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("SyntheticRows", {}, "must be the output of ReleaseSyntheticDatabase; ReadRows reads"),
        ("MarginalRows", {"attributes": ["age"]}, "the output of ReleaseSyntheticDatabase; ReadR"),
        ("IntervalRows", {}, "must be the output of ReleaseIntervals; ReadRows"),
        ("AnswerRows", {}, "must be the output of AnswerQueries; ReadRows"),
    ],
)
def test_yaml_refuses_rows_without_a_release(name, config, message):
    with pytest.raises(ValueError, match=message), beam.Pipeline() as pipeline:
        rows = getattr(beam_dp.yaml, name)(**config)
        _ = pipeline | beam.Create([1]) | rows
