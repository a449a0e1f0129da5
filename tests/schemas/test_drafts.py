"""Drafts of what people declare: SQL, Avro, BigQuery, pydantic, JSON schemas, sizes by name."""

import builtins
import datetime
import decimal
import enum
import errno
import io
import json
import os
import pathlib
import sys
from typing import Any, Literal

import pydantic
import pytest

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.schemas.read import KINDS


def entries(source: Any, kind: str | None = None, **options: Any) -> dict[str, dict[str, Any]]:
    """The attributes of a draft by name, without their names."""
    found = [dict(each) for each in dp.domain_draft(source, kind, **options).attributes]
    return {each.pop("name"): each for each in found}


def sql(folder: pathlib.Path, text: str) -> str:
    (folder / "tables.sql").write_text(text, encoding="utf-8")
    return str(folder / "tables.sql")


def confirmed(value: Any) -> dict[str, Any]:
    return {"confirm": value}


COLUMNS = {
    "age SMALLINT NOT NULL CHECK (age BETWEEN 0 AND 120)": {
        "type": "integer", "min": confirmed(0), "max": confirmed(120),
    },
    "age INT NOT NULL CHECK (age > -1 AND 10 > age)": {
        "type": "integer", "min": confirmed(0), "max": confirmed(9),
    },
    "age INT NOT NULL CHECK (age >= 0.5 AND age < 2.5)": {
        "type": "integer", "min": confirmed(1), "max": confirmed(2),
    },
    "sex CHAR(1) CHECK (sex IN ('F', 'M'))": {
        "type": "categorical", "values": confirmed(["F", "M"]), "nullable": True,
    },
    "sex text NOT NULL CHECK (((sex)::text = ANY ((ARRAY['F'::varchar, 'M'::varchar])::text[])))": {
        "type": "categorical", "values": confirmed(["F", "M"]),
    },
    "grade INT PRIMARY KEY CHECK (grade IN (1, 2, 3))": {
        "type": "categorical", "values": confirmed([1, 2, 3]),
    },
    "mood ENUM('sad', 'it''s ok') NOT NULL": {
        "type": "categorical", "values": confirmed(["sad", "it's ok"]),
    },
    "mood public.feeling NOT NULL": {"type": "categorical", "values": confirmed(["sad", "ok"])},
    "alive BOOLEAN DEFAULT TRUE": {"type": "boolean", "nullable": True},
}  # fmt: skip


@pytest.mark.parametrize("column", COLUMNS)
def test_create_table_statement_gives_types_nulls_and_constraints(tmp_path, column):
    text = f"CREATE TYPE public.feeling AS ENUM ('sad', 'ok');\nCREATE TABLE t ({column});"
    (found,) = entries(sql(tmp_path, text)).values()
    assert found == COLUMNS[column]


@pytest.mark.parametrize(
    ("name", "is_unit"),
    [
        *((name, True) for name in ("person_id", "userId", "ID", "e-mail", "UUID", "visit id")),
        *((name, False) for name in ("paid", "idle", "id_type", "valid", "humidity", "", "age")),
    ],
)
def test_type_of_a_column_that_may_identify_people_stays_open(name, is_unit):
    properties = {name or "x": {"type": "integer", "minimum": 0, "maximum": 9}}
    ((_, entry),) = entries({"type": "object", "properties": properties}).items()
    assert isinstance(entry["type"], dict) == is_unit
    if is_unit:
        with pytest.raises(dp.InputError, match=r"type is open: 'remove this attribute if it"):
            dp.domain_draft({"type": "object", "properties": properties}).domain()


def test_column_with_declared_values_is_not_taken_for_a_unit():
    properties = {"site_id": {"enum": ["a", "b"]}, "is_id": {"type": "boolean"}}
    found = entries({"type": "object", "properties": properties})
    assert [each["type"] for each in found.values()] == ["categorical", "boolean"]
    assert entries({"person_id": 85})["person_id"]["type"] == "integer"  # sizes are a domain


def test_init_explains_cost_of_null(tmp_path, capsys):
    schema = tmp_path / "schema.json"
    fields = [{"name": "age", "type": "BOOL"}, {"name": "a", "type": "BOOL", "mode": "REQUIRED"}]
    schema.write_text(json.dumps(fields))
    assert main(["init", str(schema), "--output", str(tmp_path / "domain.json")]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "The schema allows null in age; each of these columns gets an extra level." in told
    assert 'costs accuracy. Remove "nullable" where null cannot occur' in told


@pytest.mark.parametrize(
    "check",
    ["age > 3 OR alive", "age < top", "age IN (1, NULL)", "age <> 3", "f(age) > 3", "age IN ()"],
)
def test_limits_of_a_column_stay_open_if_a_constraint_has_several_columns(tmp_path, check):
    text = f"CREATE TABLE t (age INT NOT NULL, top INT, alive BOOL, CHECK ({check}))"
    found = entries(sql(tmp_path, text))["age"]
    assert found == {"type": "numeric", "whole": True, "discover": {"bins": 20}}


def test_table_is_chosen_by_name(tmp_path):
    path = sql(tmp_path, "CREATE TABLE a.visits (x INT); CREATE TABLE people (y BOOL);")
    with pytest.raises(
        dp.InputError, match=r"table: None is not valid: must name one of the tables"
    ):
        dp.domain_draft(path)
    with pytest.raises(dp.InputError, match="the nearest known is 'people'"):
        dp.domain_draft(path, table="peple")
    assert [*entries(path, table="people")] == ["y"]
    assert [*entries(path, table="visits")] == [*entries(path, table="a.visits")] == ["x"]


def test_quoted_sql_names_are_read_and_nested_types_are_left_out(tmp_path):
    text = """CREATE TABLE "t;--" ("o""dd
        name" BOOL, `x` BOOL, a INT[], j JSON, d TIME, g GEOMETRY)"""
    with pytest.raises(dp.InputError, match=r"must be SQL that can be parsed.*dialect"):
        dp.domain_draft(sql(tmp_path, text + "garbage ((("))
    text = text.replace("`x` BOOL, ", "")
    draft = dp.domain_draft(sql(tmp_path, text))
    assert [each["name"] for each in draft.attributes] == ['o"dd\n        name']
    assert draft.domain().names == ('o"dd\n        name',)
    assert [name for name, _ in draft.left_out] == ["a", "j", "d", "g"]
    mysql = "CREATE TABLE t (`a b` TINYINT UNSIGNED NOT NULL)"
    assert [*entries(sql(tmp_path, mysql), dialect="mysql")] == ["a b"]
    with pytest.raises(dp.InputError, match="the nearest known is 'mysql'"):
        dp.domain_draft(sql(tmp_path, mysql), dialect="mysqll")


def test_error_for_missing_sqlglot_states_the_install_command(tmp_path, monkeypatch):
    real = builtins.__import__

    def importing(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "sqlglot":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", importing)
    monkeypatch.delitem(sys.modules, "beam_dp.schemas.sql", raising=False)
    with pytest.raises(dp.InputError, match=r"must be read by sqlglot: pip install 'beam_dp\[sql"):
        dp.domain_draft(sql(tmp_path, "CREATE TABLE t (a INT)"))


AVRO = {
    "alive": "boolean",
    "age": ["null", "int"],
    "income": ["long", "double", "null"],
    "code": ["int", "string"],
    "sex": {"type": "enum", "name": "Sex", "symbols": ["F", "M"]},
    "sex_of_partner": ["null", "Sex"],
    "cost": {"type": "bytes", "logicalType": "decimal", "precision": 9},
    "born": {"type": "int", "logicalType": "date"},
    "at": {"type": "long", "logicalType": "timestamp-micros"},
    "local": {"type": "long", "logicalType": "local-timestamp-millis"},
    "daytime": {"type": "int", "logicalType": "time-millis"},
    "tags": {"type": "array", "items": "string"},
    "both": ["boolean", "string"],
    "nothing": "null",
    "what": "Missing",
}


def test_avro_schema_gives_types_and_symbols_to_confirm(tmp_path):
    fields = [{"name": name, "type": kind} for name, kind in AVRO.items()]
    schema = {"type": "record", "name": "Visit", "fields": fields}
    (tmp_path / "visit.avsc").write_text(json.dumps(schema), encoding="utf-8")
    draft = dp.domain_draft(str(tmp_path / "visit.avsc"))
    assert draft == dp.domain_draft(str(tmp_path / "visit.avsc"), "avro")
    found = {each["name"]: each for each in draft.attributes}
    assert {name: each["type"] for name, each in found.items()} == {
        "alive": "boolean", "age": "numeric", "income": "numeric", "code": "categorical",
        "sex": "categorical", "sex_of_partner": "categorical", "cost": "numeric", "born": "date",
        "at": "datetime", "local": "datetime",
    }  # fmt: skip
    assert found["sex"]["values"] == found["sex_of_partner"]["values"] == confirmed(["F", "M"])
    assert [name for name, each in found.items() if each.get("nullable")] == [
        "age", "income", "sex_of_partner",
    ]  # fmt: skip
    assert found["at"]["discover"]["max"] == "2100-01-01T00:00Z"
    assert found["local"]["discover"]["max"] == "2100-01-01T00:00"
    assert [name for name, _ in draft.left_out] == ["daytime", "tags", "both", "nothing", "what"]


BIGQUERY = [
    {"name": "age", "type": "INTEGER", "mode": "REQUIRED", "description": "in years"},
    {"name": "at", "type": "TIMESTAMP"},
    {"name": "local", "type": "DATETIME", "mode": "NULLABLE"},
    {"name": "daytime", "type": "TIME"},
    {"name": "tags", "type": "STRING", "mode": "REPEATED"},
    {"name": "home", "type": "RECORD", "fields": [{"name": "town", "type": "STRING"}]},
    {"name": "place", "type": "GEOGRAPHY"},
]


def test_draft_of_a_bigquery_schema_ignores_facts_about_rows():
    whole = {"schema": {"fields": BIGQUERY}, "numRows": "977", "numBytes": "12345"}
    draft = dp.domain_draft(BIGQUERY)
    assert draft.text() == dp.domain_draft(whole).text()
    assert [each["type"] for each in draft.attributes] == ["numeric", "datetime", "datetime"]
    assert [each.get("nullable") for each in draft.attributes] == [None, True, True]
    assert len(draft.left_out) == 4 and "977" not in draft.text()


class Sex(enum.StrEnum):
    FEMALE = "F"
    MALE = "M"


class Home(pydantic.BaseModel):
    town: str


class Visit(pydantic.BaseModel):
    """What a test declares."""

    age: int = pydantic.Field(ge=0, lt=121)
    sex: Sex | None
    level: Literal[1, 2, 3] = 2
    bmi: float = pydantic.Field(gt=0)
    cost: decimal.Decimal
    born: datetime.date
    at: datetime.datetime
    daytime: datetime.time
    alive: bool = True
    name: str | int
    home: Home
    tags: list[str]
    anything: Any = None


def test_pydantic_model_gives_its_fields():
    draft = dp.domain_draft(Visit)
    found = {each["name"]: each for each in draft.attributes}
    assert {name: each["type"] for name, each in found.items()} == {
        "age": "integer", "sex": "categorical", "level": "categorical", "bmi": "numeric",
        "cost": "numeric", "born": "date", "at": "datetime", "alive": "boolean",
        "name": "categorical",
    }  # fmt: skip
    assert (found["age"]["min"], found["age"]["max"]) == (confirmed(0), confirmed(120))
    assert (found["sex"]["values"], found["sex"]["nullable"]) == (confirmed(["F", "M"]), True)
    assert found["level"]["values"] == confirmed([1, 2, 3])
    assert found["bmi"]["discover"] == {"bins": 20}
    assert [name for name, _ in draft.left_out] == ["daytime", "home", "tags", "anything"]
    assert draft.text() == dp.domain_draft(Visit.model_json_schema()).text()


def test_model_is_imported_by_name(tmp_path, monkeypatch, capfd):
    (tmp_path / "shop_models_of_a_test.py").write_text(
        "from pydantic import BaseModel\nclass Sale(BaseModel):\n    paid: bool\n", "utf-8"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["init", "shop_models_of_a_test:Sale", "--output", "d.json"]) == 0
    assert dp.read_domain("d.json").names == ("paid",)
    for source, condition in [
        ("shop_models_of_a_test:Sail", "must name a class that can be imported: AttributeError"),
        ("absent_module_of_a_test:A", "the module 'absent_module_of_a_test' is not installed"),
        ("pathlib:Path", "must be a pydantic model: a class of BaseModel"),
    ]:
        with pytest.raises(dp.InputError, match=condition):
            dp.domain_draft(source)


SIZES: dict[str, Any] = {
    "age": 85,
    "0": {"type": "discrete", "domain": 2},
    "sex": {"type": "discrete", "values": ["F", "M"]},
    "size": {"size": 3},
    "hours": {"min": 0, "max": 99},
    "income": {"type": "continuous", "domain": [0, 9.5]},
}


def test_sizes_by_column_name_give_a_domain():
    found = entries(SIZES)
    for name, largest in {"age": 84, "0": 1, "size": 2}.items():
        assert found[name] == {"type": "integer", "min": 0, "max": largest}
    assert found["sex"] == {"type": "categorical", "values": confirmed(["F", "M"])}
    assert found["hours"] == {"type": "integer", "min": confirmed(0), "max": confirmed(99)}
    assert found["income"] == {"type": "numeric", "discover": {"bins": 20}}
    short = {"age": 85, "sex": 2}
    assert dp.domain_draft(short).domain() == dp.parse_domain(short)


def test_repeated_name_is_left_out_with_reason():
    twice = [{"name": "a", "type": "BOOL"}, {"name": "b", "type": "BOOL"}]
    draft = dp.domain_draft([*twice, {"name": "a", "type": "INT64"}, {"name": "", "type": "BOOL"}])
    assert [each["name"] for each in draft.attributes] == ["b"]
    assert dict(draft.left_out) == {
        "a": "its name occurs 2 times in the schema",
        "": "its name is not a non-empty Unicode string",
    }
    with pytest.raises(dp.InputError, match="must have a column that an attribute can be made of"):
        dp.domain_draft([twice[0], twice[0]])


HOSTILE = ['q"uote', "new\nline", "[red]x[/]", "\x1b[31m", "é" * 300, "a,b", "\ud800", "; rm -rf /"]


def test_hostile_names_are_kept_and_not_printed(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    schema = [{"name": name, "type": kind} for name in HOSTILE for kind in ("BOOL",)]
    draft = dp.domain_draft(schema)
    assert draft.domain().names == tuple(name for name in HOSTILE if name != "\ud800")
    schema.append({"name": "\x1b[31mlist", "type": "STRING", "mode": "REPEATED"})
    pathlib.Path("s.json").write_text(json.dumps(schema), encoding="utf-8")
    assert main(["init", "s.json", "--output", "d.json"]) == 0
    out, err = capfd.readouterr()
    assert "\x1b" not in out and err == ""
    assert json.loads(draft.text()) == json.loads(pathlib.Path("d.json").read_text("utf-8"))


def test_reading_a_recursive_schema_terminates():
    itself = {"$ref": "#/$defs/A"}
    twice = [{"$ref": "#/$defs/B"}] * 2
    parts = {"A": {"anyOf": [itself, *twice]}, "B": {"oneOf": [itself, itself]}}
    looped = {"$defs": parts, "properties": {"a": itself, "b": {}}}
    with pytest.raises(dp.InputError, match="must have a column"):
        dp.domain_draft(looped)
    record = {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}
    with pytest.raises(dp.InputError, match="must have a column"):
        dp.domain_draft(record)


def test_init_help_lists_every_kind_of_schema(capsys):
    with pytest.raises(SystemExit):
        main(["init", "--help"])
    out = " ".join(capsys.readouterr().out.split())
    assert all(kind in out for kind in KINDS)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "can be written: No space left"),
        (KeyboardInterrupt(), "^$"),
    ],
)
def test_failed_write_leaves_no_file(error, told, tmp_path, monkeypatch):
    class Full(io.FileIO):
        def write(self, data: Any) -> int:
            super().write(data[:1])
            raise error

    monkeypatch.setattr("beam_dp.storage.store.open", Full, raising=False)
    with pytest.raises((dp.InputError, KeyboardInterrupt), match=told):
        dp.domain_draft({"age": 5}).write(tmp_path / "d.json")
    assert list(tmp_path.iterdir()) == []
