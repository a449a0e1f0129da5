"""Beam YAML, also by `beam-dp run-yaml`: refused in one line, paid before it draws."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import apache_beam as beam
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.yaml import main as _  # noqa: F401  # whose import takes seconds
from jobs import job_flags, people, write_table
from program_jobs import PROMISE, RELEASE
from pytest import CaptureFixture
from yaml_jobs import build, read, run, step

import beam_dp as dp
import beam_dp.yaml
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
    ledger = dp.Ledger(str(tmp_path / "budgets.sqlite"))
    ledger.declare("people", 2.5, 0, "household", "add_or_remove_one")
    fields = {**RELEASE, "domain": OPEN, "workload": "marginals:1", "ledger": ledger.name}
    fields |= {"dataset_id": "people", "output": str(tmp_path / "out")}
    run(read(tmp_path), step("ReleaseDomain", **fields))
    assert [*tmp_path.glob("out/domain/card.json")] and not [*tmp_path.glob("out/card.json")]
    run(read(tmp_path), step("ReleaseSyntheticDatabase", **fields))
    release = dp.read_release(tmp_path / "out")
    assert dp.verify_release(release).holds
    assert release.plan["ledger_release"] == "people/1" and len(ledger.entries("people")) == 1
    (tmp_path / "out" / "card.json").rename(tmp_path / "card.json")
    for path in tmp_path.glob("out/*.avro"):
        path.unlink()
    run(read(tmp_path), step("ReleaseSyntheticDatabase", **fields))
    assert dp.read_release(tmp_path / "out").plan["ledger_release"] == "people/2"


@pytest.mark.job
def test_three_files_choose_records_find_a_domain_and_release_with_both(tmp_path):
    ledger = dp.Ledger(str(tmp_path / "budgets.sqlite"))
    ledger.declare("people", 1, 0, "household", "add_or_remove_one")
    chosen = {"max_records_per_unit": "discover", "most_records_per_unit": 4}
    fields = {
        **RELEASE,
        **chosen,
        "domain": OPEN,
        "workload": "marginals:1",
        "dataset_id": "people",
    }
    fields |= {"ledger": ledger.name, "output": str(tmp_path / "out")}
    runs = ("ReleaseRecordsPerUnit", "ReleaseDomain", "ReleaseSyntheticDatabase")
    for number, name in enumerate(runs):
        for later in runs[number + 1 :]:
            with pytest.raises(ValueError, match=f"must be discovered first: run .* {name} "):
                getattr(beam_dp.yaml, later)(**fields)
        run(read(tmp_path), step(name, **fields))
    release = dp.read_release(tmp_path / "out")
    assert dp.verify_release(release).holds and release.records_per_unit.whole.epsilon == 1
    for place in ("out", "out/domain", "out/domain/records_per_unit"):
        assert dp.read_release(tmp_path / place).plan["ledger_release"] == "people/1"
    (entry,) = ledger.entries("people")
    assert ledger.is_state_used(entry, 2)


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
    answer = dp.read_release(tmp_path / "out").answer([10], [49])
    assert round(float(answer.values[0])) == 40


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
def test_marginal_rows_of_a_new_or_an_existing_release_are_equal(tmp_path):
    output, fields = str(tmp_path / "out"), {"attributes": ["sex", "age"]}
    release = step("ReleaseSyntheticDatabase", output=output, **RELEASE)
    path = {name: str(tmp_path / name) for name in ("first", "second")}
    write = {name: step("WriteToParquet", path=each) for name, each in path.items()}
    run(read(tmp_path), release, step("MarginalRows", **fields), write["first"])
    run(step("ReadRows", release=output, **fields), write["second"])
    first, second = (rows_in(tmp_path, name) for name in ("first", "second"))
    assert first == second and len(first) == 4 * 2
    assert {row["draw_id"] for row in first} == {dp.read_release(output).draw_id}


LOGGER = "beam_dp.yaml"


@pytest.fixture
def ledger(tmp_path) -> dp.Ledger:
    ledger = dp.Ledger(str(tmp_path / "ledger.sqlite"))
    ledger.declare("people", 100, 1e-9, "household", "add_or_remove_one")
    return ledger


@pytest.mark.job
def test_transform_refuses_what_it_cannot_count_and_then_pays_by_the_entry_on_its_card(
    tmp_path, ledger
):
    rows = step("Create", elements=[{"household": 1, "agee": 3, "sexx": "Male"}])
    fields = of_ledger(ledger, **RELEASE, output=str(tmp_path / "out"))
    release = step("ReleaseSyntheticDatabase", **fields)
    with pytest.raises(ValueError, match="must be a field of the records; the nearest known is"):
        run(rows, release)
    fixed = step("WindowInto", windowing={"type": "fixed", "size": "60s"})
    with pytest.raises(ValueError, match=r"records: .* must be in the global window"):
        run(read(tmp_path), fixed, release)
    records = beam.Pipeline("FnApiRunner") | beam.Create([])
    records.is_bounded = False
    with pytest.raises(ValueError, match=r"^records: .* must be bounded$"):
        _ = records | beam_dp.yaml.ReleaseSyntheticDatabase(**fields)
    assert ledger.entries("people") == [] and not (tmp_path / "out").exists()
    run(read(tmp_path), release)
    (entry,) = ledger.entries("people")
    assert entry.state == "submitted" and entry.guarantee.epsilon == 1
    card = (tmp_path / "out" / "card.json").read_text("utf-8")
    assert json.dumps({"ledger_release": entry.release_id})[1:-1] in card


@pytest.mark.job
@pytest.mark.parametrize(("file_format", "extension"), [("csv", "parquet"), ("parquet", "dat")])
def test_reads_files_in_the_given_format(tmp_path, file_format, extension):
    written = Path(write_table(tmp_path, people(), file_format))
    path = str(written.rename(tmp_path / f"file.{extension}"))
    fields = {**RELEASE, "epsilon": 1e6, "output": str(tmp_path / "out")}
    run(
        step("ReadRecords", input=path, input_format=file_format),
        step("ReleaseSyntheticDatabase", **fields),
    )
    assert dp.read_release(tmp_path / "out").num_records == 500


@pytest.mark.job
@pytest.mark.parametrize("sampler", ["search", "auto"])
def test_yaml_logs_warnings_with_names_of_fields(tmp_path, caplog, sampler):
    fields = {**RELEASE, "domain": {"age": 2}, "workload": "marginals:1", "num_records": 5}
    release = beam_dp.yaml.ReleaseSyntheticDatabase(
        **fields, mechanism="small_db", size=3, sampler=sampler, output=str(tmp_path / "out")
    )
    records = beam.Pipeline(runner=FnApiRunner()) | beam.Create([])
    with caplog.at_level(logging.WARNING, LOGGER):
        _ = records | release
    warned = [each.getMessage() for each in caplog.records if each.name == LOGGER]
    expected = ["sampler search: the running time depends"] if sampler == "search" else []
    assert [each[:40] for each in warned] == expected


def of_ledger(ledger: dp.Ledger, **fields: Any) -> dict[str, Any]:
    return {"ledger": ledger.name, "dataset_id": "people", **fields}


def refusal(pipeline: beam.Pipeline, *transforms: dict[str, Any], kind: str = "composite") -> str:
    """What is said, after Beam's words on where; demands one line."""
    with pytest.raises(ValueError) as refused:
        build(pipeline, {"type": kind, "transforms": list(transforms)})
    line = str(refused.value)
    assert "\n" not in line
    return line.partition(": ")[2]


@pytest.mark.job
def test_refuses_second_release_in_a_folder_before_paying(tmp_path, ledger):
    def release(attribute: str, output: str) -> dict[str, Any]:
        fields = of_ledger(ledger, **PROMISE, domain={"age": 9, "hours": 9}, attribute=attribute)
        named = step("ReleaseIntervals", output=output, **fields)
        return {**named, "name": attribute, "input": "People"}

    rows = step("Create", elements=[{"household": 1, "age": 3, "hours": 4}])
    pipeline = beam.Pipeline("FnApiRunner")
    first, second = str(tmp_path / "out"), f"{tmp_path}/deep/../out/"
    line = refusal(
        pipeline, {**rows, "name": "People"}, release("age", first), release("hours", second)
    )
    condition = "must be another directory: this pipeline writes there already"
    assert line == f"output: {second!r} is not valid: {condition}"
    # That of the first one was spent before anybody could know of the second.
    assert len(ledger.entries("people")) == 1


def test_refuses_a_local_output_on_dataflow_before_paying(tmp_path, ledger):
    out = str(tmp_path / "out")
    for budget in (of_ledger(ledger), {}):
        release = step("ReleaseSyntheticDatabase", output=out, **RELEASE, **budget)
        pipeline = beam.Pipeline("FnApiRunner")
        pipeline.runner = DataflowRunner()  # a pipeline that is made with it looks for its bucket
        assert refusal(pipeline, read(tmp_path), release, kind="chain") == (
            f"output: '{out}' is not valid: must be a URL such as gs://BUCKET/FOLDER with"
            " --runner DataflowRunner: its workers share no local folder"
        )
    assert ledger.entries("people") == []


def file_of(folder: Path, *transforms: dict[str, Any], **others: str) -> str:
    spec: dict[str, Any] = {"pipeline": {"type": "chain", "transforms": list(transforms)}}
    if others:
        spec["providers"] = [{"type": "python", "config": {"packages": []}, "transforms": others}]
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump(spec))
    return str(path)


def job(folder: Path, **changed: Any) -> list[dict[str, Any]]:
    fields = {**RELEASE, "output": str(folder / "out"), **changed}
    table = write_table(folder, people())
    return [step("ReadRecords", input=table), step("ReleaseSyntheticDatabase", **fields)]


def line(capfd: CaptureFixture[str], *argv: str, code: int = 2) -> str:
    assert run_yaml.main(argv) == code
    shown = [each for each in capfd.readouterr().err.splitlines() if not each.startswith("[")]
    assert len(shown) == 1 and shown[0].startswith("error: "), shown
    return shown[0]


class Quoting(beam.PTransform):
    """Looks into its input while it is built, and fails with what it has seen."""

    def expand(self, records: Any) -> Any:
        return records | beam.Map(pd.to_numeric(["alice is 34"]))


class Refusing(beam.PTransform):
    """Refuses its parameters while it is built."""

    def expand(self, records: Any) -> Any:
        raise ValueError("size: must be given,\nsuch as 7")


class Failing(beam.PTransform):
    """Fails while it runs, with what it has seen."""

    def expand(self, records: Any) -> Any:
        return records | beam.Map(lambda row: {}[f"alice: {row}"])


@pytest.mark.job
@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"epsilon": 0}, r"line \d+: epsilon: 0\.0 is not valid: must be a number from 1e-300"),
        ({"worload": "x"}, r"worload: unknown field; .* the nearest is 'workload'$"),
        ({"domain": {"agee": 100}}, r"'agee' is not valid: must be a column of .*'age'"),
    ],
)
def test_refused_field_gives_a_one_line_error(changed, told, tmp_path, capfd):
    if "domain" in changed:
        changed = {**changed, "workload": "marginals:1"}
    shown = line(capfd, "--yaml_pipeline_file", file_of(tmp_path, *job(tmp_path, **changed)))
    assert re.search(told, shown), shown
    assert not (tmp_path / "out").exists()


@pytest.mark.job
def test_invalid_files_give_a_one_line_error(tmp_path, capfd):
    path = file_of(tmp_path, step("RelaseIntervals", attribute="age"))
    assert "Unknown type or missing provider" in line(capfd, "--yaml_pipeline_file", path)
    path = file_of(tmp_path, *job(tmp_path))
    shown = line(capfd, "--yaml_pipeline_file", path, "--runner=NoSuchRunner")
    assert "--runner: 'NoSuchRunner' is not valid: must be" in shown
    path = Path(file_of(tmp_path, *job(tmp_path)))
    path.write_text(path.read_text().replace("type: chain", "type: chian"))
    shown = line(capfd, "--yaml_pipeline_file", str(path))
    assert re.fullmatch(r"error: 'chian' is not valid under any .* around line \d+", shown), shown
    other = {"Own": "no_such_module.Own"}
    path = Path(file_of(tmp_path, *job(tmp_path), step("Own"), **other))
    shown = line(capfd, "--yaml_pipeline_file", str(path))
    assert shown.endswith("can't be built: the module 'no_such_module' is not installed")


WITHHELD = "message is withheld, because it may quote records, and was not stored"


@pytest.mark.job
@pytest.mark.parametrize(
    ("broken", "code", "told"),
    [(Quoting, 2, WITHHELD), (Failing, 1, WITHHELD), (Refusing, 2, "must be given, such as 7")],
)
def test_withholds_messages_that_may_quote_a_record(broken, code, told, tmp_path, capfd):
    other = {broken.__name__: f"{__name__}.{broken.__name__}"}
    rows = step("Create", elements=[{"household": 1, "age": 3}])
    path = file_of(tmp_path, rows, step(broken.__name__), **other)
    shown = line(capfd, "--yaml_pipeline_file", path, code=code)
    assert "alice" not in shown and told in shown


@pytest.mark.job
def test_failed_job_leaves_no_draft(tmp_path, capfd, monkeypatch):
    draft = tmp_path / "out" / f".draft-{'0' * 32}-abcdefgh"
    original = run_yaml.run_pipeline

    def leaving_a_draft(*arguments: Any) -> bool:
        draft.mkdir(parents=True)
        return original(*arguments)

    monkeypatch.setattr(run_yaml, "run_pipeline", leaving_a_draft)
    read, release = job(tmp_path)
    path = file_of(tmp_path, read, step("Failing"), release, Failing=f"{__name__}.Failing")
    assert "the job failed" in line(capfd, "--yaml_pipeline_file", path, code=1)
    assert not draft.exists()


@pytest.mark.parametrize(("text", "is_told"), [("Own: alice.Own", True), ("Own: bob.Own", False)])
def test_names_a_module_only_if_the_file_does(text, is_told, tmp_path):
    path = tmp_path / "pipeline.yaml"
    path.write_text(text)
    with pytest.raises(ModuleNotFoundError) as caught:
        raise ModuleNotFoundError("alice is 34", name="alice")
    told = run_yaml._told(caught.value, str(path))
    assert ("the module 'alice' is not installed" in told) == is_told
    assert "alice is 34" not in told
