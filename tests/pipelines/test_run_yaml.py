"""`beam-dp run-yaml`: one line for what is refused, none that may quote a record, no drafts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import apache_beam as beam
import pandas as pd
import pytest
import yaml
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.yaml import main as _  # noqa: F401  # whose import takes seconds
from jobs import people, write_table
from pytest import CaptureFixture
from yaml_jobs import RELEASE, step

from pipelines import run_yaml


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
def test_launched_program_stages_the_job_and_exits(tmp_path, monkeypatch, capfd):
    """A launcher of Dataflow's templates starts the job once the program has ended."""

    class Staged:
        def wait_until_finish(self) -> None:
            raise OSError("Failed to get the Dataflow job id.")

    monkeypatch.setattr(FnApiRunner, "run_pipeline", lambda *given: Staged())
    argv = [f"--yaml_pipeline_file={file_of(tmp_path, *job(tmp_path))}"]
    assert run_yaml.main([*argv, "--template_location=gs://staging/job_object"]) == 0
    assert "staged" in capfd.readouterr().err
    assert run_yaml.main(argv) == 1


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


@pytest.mark.job
@pytest.mark.parametrize(("broken", "code"), [(Quoting, 2), (Failing, 1)])
def test_withholds_messages_that_may_quote_a_record(broken, code, tmp_path, capfd):
    other = {broken.__name__: f"{__name__}.{broken.__name__}"}
    rows = step("Create", elements=[{"household": 1, "age": 3}])
    path = file_of(tmp_path, rows, step(broken.__name__), **other)
    shown = line(capfd, "--yaml_pipeline_file", path, code=code)
    assert "alice" not in shown
    assert "message is withheld, because it may quote records, and was not stored" in shown


@pytest.mark.job
def test_shows_message_of_a_transform_that_fails_at_construction(tmp_path, capfd):
    rows = step("Create", elements=[{"household": 1, "age": 3}])
    path = file_of(tmp_path, rows, step("Refusing"), Refusing=f"{__name__}.Refusing")
    assert "size: must be given, such as 7" in line(capfd, "--yaml_pipeline_file", path)


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


@pytest.mark.parametrize(
    ("place", "is_told"),
    [
        ("json/decoder.py", True),
        ("apache_beam/io/filebasedsource.py", True),
        ("own/transform.py", True),
        ("pandas/io/json/_json.py", False),
        ("pandas/core/a.py", False),
        ("pyarrow/parquet/core.py", False),
        ("apache_beam/dataframe/io.py", False),
    ],
)
def test_withholds_errors_raised_by_record_readers_at_construction(place, is_told):
    with pytest.raises(ValueError, match="tell-tale") as caught:
        exec(compile("raise ValueError('tell-tale')", f"/lib/{place}", "exec"))
    assert ("tell-tale" in run_yaml._told(caught.value)) == is_told


@pytest.mark.parametrize(("text", "is_told"), [("Own: alice.Own", True), ("Own: bob.Own", False)])
def test_names_a_module_only_if_the_file_does(text, is_told, tmp_path):
    path = tmp_path / "pipeline.yaml"
    path.write_text(text)
    with pytest.raises(ModuleNotFoundError) as caught:
        raise ModuleNotFoundError("alice is 34", name="alice")
    told = run_yaml._told(caught.value, str(path))
    assert ("the module 'alice' is not installed" in told) == is_told
    assert "alice is 34" not in told
