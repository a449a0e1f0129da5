"""Drafts of what people declare: SQL, Avro, BigQuery, pydantic, JSON schemas, sizes by name."""

import builtins
import datetime
import decimal
import enum
import errno
import io
import os
import pathlib
import sys
from typing import Any, Literal

import pydantic
import pytest

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.domain.schemas.read import KINDS


def sql(folder: pathlib.Path, text: str) -> str:
    (folder / "tables.sql").write_text(text, encoding="utf-8")
    return str(folder / "tables.sql")


def confirmed(value: Any) -> dict[str, Any]:
    return {"confirm": value}


def test_error_for_missing_sqlglot_states_the_install_command(tmp_path, monkeypatch):
    real = builtins.__import__

    def importing(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "sqlglot":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", importing)
    monkeypatch.delitem(sys.modules, "beam_dp.domain.schemas.sql", raising=False)
    with pytest.raises(dp.InputError, match=r"must be read by sqlglot: pip install 'beam_dp\[sql"):
        dp.domain_draft(sql(tmp_path, "CREATE TABLE t (a INT)"))


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
    with pytest.raises(dp.InputError, match="can be imported: AttributeError"):
        dp.domain_draft("shop_models_of_a_test:Sail")


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
