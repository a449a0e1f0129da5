"""`beam-dp release` and `dp.release` without a domain: what they assume, and what they write."""

import csv
import itertools
import json
import pathlib
import shlex

import pyarrow as pa
import pytest
from jobs import people, write_table

import beam_dp as dp
from beam_dp.cli.main import _GROUPS, command_parsers, main

TYPES = "age=integer,sex=categorical,smokes=boolean"


def card(folder: pathlib.Path) -> dict:
    fields = json.loads((folder / "card.json").read_text())
    for name in ("draw_id", "files", "fit", "errors", "created"):
        fields.pop(name, None)
    return fields


def commands(err: str) -> list[list[str]]:
    """The commands that were printed, without the program's name."""
    return [shlex.split(line)[1:] for line in err.splitlines() if line.startswith("  beam-dp ")]


@pytest.mark.job
def test_printed_commands_make_the_same_release(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path, people(), "csv")
    argv = ["--epsilon", "8", "--privacy_unit", "household", "--output", "copy", "--types", TYPES]
    made_up = ["--row_id", "id=P{:d}", "--unit_id", "household", "--constants", "source=test"]
    assert main(["release", "people.csv", *argv, *made_up]) == 0
    printed = capsys.readouterr()
    rows = list(csv.reader((tmp_path / "copy" / "records.csv").open()))
    release = dp.read_release("copy", kind=dp.SyntheticDatabase)
    assert rows[0] == ["id", "household", "age", "sex", "smokes", "source"]
    assert len(rows) == release.num_records + 1 and rows[1][:2] == ["P1", "1"]
    assert "copy/records.csv" in printed.out and dp.verify_release(release).holds
    (tmp_path / "copy").rename(tmp_path / "first")
    init, full = commands(printed.err)
    assert main(init) == 0
    assert main(full) == 0
    first, second = card(tmp_path / "first"), card(tmp_path / "copy")
    assert first["guarantee"] == second["guarantee"]
    domains = [
        json.loads((tmp_path / each / "domain/card.json").read_text())["domain"]
        for each in ("first", "copy")
    ]
    assert domains[0] == domains[1]


@pytest.mark.job
def test_a_copy_that_cannot_be_written_as_csv_does_not_make_a_paid_job_fail(
    tmp_path, monkeypatch, capsys
):
    def full(path, data):
        raise dp.InputError("output", path, "must be a file that can be written: disk full")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("beam_dp.cli.release.write_new_file", full)
    write_table(tmp_path, people(), "csv")
    argv = ["--epsilon", "8", "--privacy_unit", "household", "--output", "copy", "--types", TYPES]
    assert main(["release", "people.csv", *argv]) == 0
    assert "disk full; the release is complete without this file" in capsys.readouterr().err
    assert dp.verify_release(dp.read_release("copy")).holds


def test_columns_that_identify_people_are_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("person_id,order_id,email,age,city\n")
    argv = ["--epsilon", "1", "--privacy_unit", "person_id", "--output", "copy", "--validate_only"]
    types = "age=integer,city=categorical"
    assert main(["release", "a.csv", *argv, "--types", types, "--leave_out", "city"]) == 0
    init, _ = commands(capsys.readouterr().err)
    assert init[init.index("--leave_out") + 1] == "person_id,order_id,email,city"
    typed = f"{types},order_id=categorical"
    assert main(["release", "a.csv", *argv, "--types", typed, "--json"]) == 0
    names = [each["name"] for each in json.loads(capsys.readouterr().out)["domain"]["attributes"]]
    assert names == ["order_id", "age", "city"]


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["nothing.csv"], "FILE"),
        (["a.csv", "--types", "age=int"], "types"),
        (["a.csv", "--types", "age"], "types"),
        (["a.csv", "--leave_out", "aeg"], "leave_out"),
        (["a.csv", "--privacy_unit", "person"], "privacy_unit"),
        (["a.csv", "--schema", "a.sql"], "schema"),
        (["a.csv", "--row_id", "age=P{:d}"], "row_id"),
        (["a.csv", "--unit_id", "u", "--output", "gs://no-bucket/copy"], "unit_id"),
    ],
)
def test_refusals_are_one_line_and_write_nothing(argv, name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("person_id,age\n1,33\n")
    unit = [] if "--privacy_unit" in argv else ["--privacy_unit", "person_id"]
    output = [] if "--output" in argv else ["--output", "copy"]
    assert main(["release", *argv, "--epsilon", "1", *output, *unit]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1 and name in printed.err
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_a_table_in_memory_needs_an_epsilon_and_a_unit():
    release = dp.release(people(), epsilon=1, privacy_unit="household", types="from_data")
    assert release.domain.names == ("age", "sex", "smokes")
    assert release.domain.to_json()["types_from"] == "data"
    assert release.limited_guarantee == dp.Guarantee(1, 1e-9, "add_or_remove_one", "household", 1)
    assert {*release.workload.marginals} == {*itertools.combinations(release.domain.names, 2)}
    for given, name in (
        ({"epsilon": 1}, "privacy_unit"),
        ({"privacy_unit": "household"}, "epsilon"),
        ({"guarantee": release.limited_guarantee, "epsilon": 1}, "epsilon"),
        ({"domain": release.domain, "types": "from_data", "epsilon": 1}, "privacy_unit"),
    ):
        with pytest.raises(dp.InputError, match=f"^{name}"):
            dp.release(people(), **given)


def test_help_has_every_command_once():
    listed = [name for names in _GROUPS.values() for name in names]
    assert sorted(listed) == sorted(command_parsers(())[1])


def test_columns_of_any_table_are_read_by_their_names(tmp_path):
    table = pa.table({"age": pa.array([1.5]), "when": pa.array([0], pa.time32("s"))})
    draft = dp.domain_draft(table, other_types="discover", null="none")
    assert [dict(each) for each in draft.attributes] == [{"name": "age", "type": "discover"}]
