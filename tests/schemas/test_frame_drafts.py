"""Drafts from frames and from the header of a CSV file: names and types, never a value."""

from __future__ import annotations

import datetime
import json
import pathlib
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import beam_dp as dp
from beam_dp.cli.main import main

CANARY = "Zebulon Quackenbush"
# In the place of a type that nothing declares.
OPEN = "open"


def types(source: Any, **options: Any) -> dict[str, Any]:
    """The declared type of each attribute, or that it is open."""
    draft = dp.domain_draft(source, **options)
    return {
        each["name"]: OPEN if isinstance(each["type"], dict) else each["type"]
        for each in draft.attributes
    }


def pandas_frame(name: str = CANARY, age: int = 83) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "name": pd.Series([name], dtype=object),
            "town": pd.Categorical([name]),
            "floor": pd.Categorical([age]),
            "text": pd.Series([name], dtype="string"),
            "age": [age],
            "small": pd.Series([age], dtype="Int8"),
            "weight": [age / 7],
            "alive": [True],
            "seen": pd.to_datetime(["2020-01-05"]),
            "seen there": pd.to_datetime(["2020-01-05T08:00Z"]),
            "arrow": pd.Series([datetime.date(1983, 1, 1)], dtype=pd.ArrowDtype(pa.date32())),
            "lasted": pd.to_timedelta([age], unit="s"),
            "month": pd.PeriodIndex(["2020-01"], freq="M"),
        },
        index=pd.Index([age], name="row"),
    )


def test_pandas_frame_gives_names_and_types() -> None:
    draft = dp.domain_draft(pandas_frame())
    assert types(pandas_frame()) == {
        "row": "integer",
        "name": OPEN,
        "town": "categorical",
        "floor": "integer",
        "text": "categorical",
        "age": "integer",
        "small": "integer",
        "weight": "numeric",
        "alive": "boolean",
        "seen": "datetime",
        "seen there": "datetime",
        "arrow": "date",
    }
    assert [name for name, _ in draft.left_out] == ["lasted", "month"]
    nullable = [each["name"] for each in draft.attributes if each.get("nullable")]
    assert nullable == ["town", "floor", "text", "small", "weight", "seen", "seen there", "arrow"]


def test_draft_of_a_pandas_frame_depends_on_no_value() -> None:
    text = dp.domain_draft(pandas_frame()).text()
    assert text == dp.domain_draft(pandas_frame("Bob", 7)).text()
    assert text == dp.domain_draft(pandas_frame().head(0)).text()
    assert CANARY not in text and "83" not in text


def test_arrow_table_gives_its_schema_without_the_values_of_dictionaries() -> None:
    table = pa.table({"age": [83], "town": pa.array([CANARY]).dictionary_encode()})
    text = dp.domain_draft(table).text()
    assert text == dp.domain_draft(table.schema).text()
    assert CANARY not in text and "83" not in text
    assert dp.domain_draft(table.to_batches()[0]).text() == text


def test_polars_frame_lists_the_values_of_an_enum_to_confirm() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(
        {
            "sex": polars.Series(["F"], dtype=polars.Enum(["F", "M"])),
            "town": polars.Series([CANARY], dtype=polars.Categorical),
            "age": [83],
            "born": [datetime.date(1983, 1, 1)],
            "id": polars.Series([object()], dtype=polars.Object),
            "parts": [[83]],
        }
    )
    draft = dp.domain_draft(frame)
    assert types(frame) == {
        "sex": "categorical",
        "town": "categorical",
        "age": "integer",
        "born": "date",
    }
    assert draft.attributes[0]["values"] == {"confirm": ["F", "M"]}
    assert [name for name, _ in draft.left_out] == ["id", "parts"]
    assert CANARY not in draft.text() and "83" not in draft.text()
    assert dp.domain_draft(frame.lazy()).text() == draft.text()


def csv_file(folder: pathlib.Path, text: str, encoding: str = "utf-8") -> str:
    (folder / "visits.csv").write_text(text, encoding=encoding)
    return str(folder / "visits.csv")


def test_csv_file_gives_its_names_with_open_types(tmp_path: pathlib.Path) -> None:
    text = f'age,"in, or out",person_id\r\n83,x,{CANARY}\r\n'
    source = csv_file(tmp_path, text, "utf-8-sig")
    draft = dp.domain_draft(source)
    assert types(source) == {"age": OPEN, "in, or out": OPEN, "person_id": OPEN}
    assert [point.key for point in draft.open_points] == ["type"] * 3
    assert "remove this attribute" in draft.open_points[2].task
    assert CANARY not in draft.text() and "83" not in draft.text()
    with pytest.raises(dp.InputError, match=r"attribute 'age', type is open: 'write \"boolean\""):
        draft.domain()


@pytest.mark.parametrize(
    "text", ["", "\n1,2\n", f"83,{CANARY}\n", "a,a\n1,2\n", "a,\n1,2\n", "a,1e5\n", "\xff"]
)
def test_refuses_a_csv_file_without_a_header_and_shows_nothing_of_it(
    tmp_path: pathlib.Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = csv_file(tmp_path, text, "latin-1")
    output = tmp_path / "domain.json"
    assert main(["init", source, "--output", str(output)]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "must" in told
    assert CANARY not in told and not output.exists()


def test_init_writes_a_draft_of_a_csv_file(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = csv_file(tmp_path, "age,sex\n83,F\n"), tmp_path / "domain.json"
    assert main(["init", source, "--output", str(output)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "2 attributes, 2 open points" in told
    assert '"integer" or "numeric", and its keys' in told
    names = [each["name"] for each in json.loads(output.read_text())["attributes"]]
    assert names == ["age", "sex"]


def test_null_none_gives_no_attribute_a_level_for_null(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = pa.schema({"age": pa.int64(), "alive": pa.bool_()})
    assert all(each["nullable"] for each in dp.domain_draft(schema).attributes)
    bare = dp.domain_draft(schema, null="none")
    assert not any("nullable" in each for each in bare.attributes)
    source, output = tmp_path / "schema.json", tmp_path / "domain.json"
    source.write_text('[{"name": "alive", "type": "BOOL"}]')
    assert main(["init", str(source), "--null", "none", "--output", str(output)]) == 0
    assert json.loads(output.read_text()) == {"attributes": [{"name": "alive", "type": "boolean"}]}
    assert "extra level" not in capsys.readouterr().out
    assert main(["init", str(source), "--null", "no", "--output", "x"]) == 2
    assert "--null: 'no' is refused; must be 'declared' or 'none'" in capsys.readouterr().err
