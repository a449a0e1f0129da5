"""A file with a schema holds records too: nothing of these may show in a draft."""

from __future__ import annotations

import datetime
import json
import pathlib
from typing import Any

import fastavro
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

import beam_dp as dp
from beam_dp.cli.main import main

# Of pandas' own, on the way to Arrow.
pytestmark = pytest.mark.filterwarnings("ignore:Series.values")
CANARY = "Zebulon Quackenbush"


def frame_of(names: list[str], ages: list[int]) -> pd.DataFrame:
    """A frame with text, numbers, a category, a date and a time, and a RangeIndex."""
    frame = pd.DataFrame(
        {
            "name": names,
            "age": ages,
            "weight": [age / 7 for age in ages],
            "town": pd.Categorical(names),
            "alive": [age > 3 for age in ages],
            "born": [datetime.date(1900 + age, 1, 1) for age in ages],
            "seen": pd.to_datetime([f"2020-01-{1 + age % 28:02}T08:00Z" for age in ages]),
        }
    )
    frame.attrs["origin"] = names[0]
    return frame


def written(path: pathlib.Path, frame: pd.DataFrame) -> str:
    """A Parquet file with statistics, and all that pandas adds."""
    table = pa.Table.from_pandas(frame)
    assert b'"kind": "range"' in (table.schema.metadata or {})[b"pandas"]
    pq.write_table(table, path, write_statistics=True, row_group_size=2)
    return str(path)


def test_a_footer_of_statistics_and_pandas_metadata_gives_names_and_types_alone(
    tmp_path: pathlib.Path,
) -> None:
    path = written(tmp_path / "a.parquet", frame_of([CANARY] * 977, [83] * 977))
    found = pq.ParquetFile(path)
    statistics = found.metadata.row_group(0).column(1).statistics
    assert (statistics.min, found.metadata.num_rows) == (83, 977)
    draft = dp.domain_draft(path)
    text = draft.text()
    for secret in (CANARY, "83", "977", "pandas", "index", "1983"):
        assert secret not in text, secret
    assert [(each["name"], each["type"]) for each in draft.attributes] == [
        ("name", "categorical"),
        ("age", "integer"),
        ("weight", "numeric"),
        ("town", "categorical"),
        ("alive", "boolean"),
        ("born", "date"),
        ("seen", "datetime"),
    ]
    assert {point.key for point in draft.open_points} == {"values", "min", "max", "edges"}


rows = st.lists(st.tuples(st.text(min_size=1, max_size=4), st.integers(0, 90)), min_size=1)


@pytest.mark.parametrize("kind", ["parquet", "arrow", "stream", "avro"])
@settings(max_examples=10, deadline=None)
@given(one=rows, other=rows)
def test_two_files_of_one_schema_and_other_rows_give_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, kind: str, one: Any, other: Any
) -> None:
    folder = tmp_path_factory.mktemp("files")
    texts = []
    for number, rows in enumerate((one, other)):
        home = folder / str(number)
        home.mkdir()
        texts.append(dp.domain_draft(written_as(kind, home, rows)).text())
    assert texts[0] == texts[1]


def written_as(kind: str, folder: pathlib.Path, rows: list[tuple[str, int]]) -> str:
    # Half a character is no text that a file holds.
    names = [name.encode("utf-8", "replace").decode() for name, _ in rows]
    ages = [age for _, age in rows]
    if kind == "avro":
        symbols = {"type": "enum", "name": "Town", "symbols": ["A", "B"]}
        fields = [{"name": "name", "type": "string"}, {"name": "town", "type": symbols}]
        records = [{"name": name, "town": "A"} for name in names]
        with open(folder / "f.avro", "wb") as file:
            fastavro.writer(file, {"type": "record", "name": "R", "fields": fields}, records)
        return str(folder / "f.avro")
    frame = frame_of(names, ages)
    if kind == "parquet":
        return written(folder / "f.parquet", frame)
    table = pa.Table.from_pandas(frame)
    if kind == "arrow":
        pyarrow.feather.write_feather(table, folder / "f.feather")
        return str(folder / "f.feather")
    with pa.ipc.new_stream(folder / "f.arrows", table.schema) as writer:
        writer.write_table(table)
    return str(folder / "f.arrows")


def test_the_command_writes_and_prints_nothing_of_the_rows(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = []
    for name, age in ((CANARY, 83), ("Bo", 4)):
        written(tmp_path / "people.parquet", frame_of([name], [age]))
        assert main(["init", "people.parquet", "--output", "d.json"]) == 0
        said.append((capfd.readouterr(), (tmp_path / "d.json").read_bytes()))
        (tmp_path / "d.json").unlink()
    assert said[0] == said[1]


TYPES: list[tuple[pa.DataType, str | None]] = [
    (pa.dictionary(pa.int8(), pa.string()), "categorical"),
    (pa.dictionary(pa.int8(), pa.int64()), "integer"),
    (pa.large_string(), "categorical"),
    (pa.string_view(), "categorical"),
    (pa.binary(4), "categorical"),
    (pa.uint64(), "integer"),
    (pa.float16(), "numeric"),
    (pa.decimal128(9, 2), "numeric"),
    (pa.date64(), "date"),
    (pa.timestamp("ns"), "datetime"),
    (pa.bool8(), "boolean"),
    (pa.time32("s"), None),
    (pa.duration("s"), None),
    (pa.month_day_nano_interval(), None),
    (pa.null(), None),
    (pa.list_(pa.string()), None),
    (pa.struct([("a", pa.int8())]), None),
    (pa.map_(pa.string(), pa.int8()), None),
    (pa.dense_union([pa.field("a", pa.int8())]), None),
]


@pytest.mark.parametrize(("kind", "attribute"), TYPES, ids=str)
def test_each_type_of_arrow_makes_one_attribute_or_none(
    kind: pa.DataType, attribute: str | None
) -> None:
    draft = dp.domain_draft(pa.schema([pa.field("key", pa.bool_()), pa.field("x", kind)]))
    if attribute is None:
        assert [name for name, _ in draft.left_out] == ["x"]
    else:
        assert [each["type"] for each in draft.attributes] == ["boolean", attribute]
        assert not draft.left_out


def test_null_has_a_level_where_the_schema_admits_it() -> None:
    schema = pa.schema([pa.field("a", pa.bool_()), pa.field("b", pa.bool_(), nullable=False)])
    assert dp.domain_draft(schema).to_json() == {
        "attributes": [
            {"name": "a", "type": "boolean", "nullable": True},
            {"name": "b", "type": "boolean"},
        ]
    }
    assert dp.domain_draft(schema).domain().names == ("a", "b")


def test_a_column_alone_is_no_schema() -> None:
    with pytest.raises(dp.InputError, match="must be a path, parsed JSON, a pydantic model, a"):
        dp.domain_draft(pa.array([1]))


@pytest.mark.parametrize("name", ["a.parquet", "a.feather", "a.avro", "absent.parquet"])
def test_a_damaged_file_is_refused_in_one_line_that_quotes_nothing(
    tmp_path: pathlib.Path, name: str
) -> None:
    path = tmp_path / name
    if "absent" not in name:
        path.write_bytes(f"PAR1{CANARY}PAR1".encode())
    with pytest.raises(dp.InputError, match=r"must be an? .* that (can be read|exists)") as caught:
        dp.domain_draft(str(path))
    assert CANARY not in str(caught.value) and "\n" not in str(caught.value)
    assert json.dumps(caught.value.args[1]) == json.dumps(str(path))


def test_a_parquet_file_with_hostile_columns(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    names = ["q\"uo'te", "new\nline", "", "\x1b[31mred", "twice", "twice", "nested", "[b]"]
    columns = [pa.array([True])] * 6 + [pa.array([{"a": [1]}]), pa.array([False])]
    pq.write_table(pa.table(columns, names=names), tmp_path / "h.parquet")
    path = str(tmp_path / "d.json")
    assert main(["init", str(tmp_path / "h.parquet"), "--output", path]) == 0
    assert dp.read_domain(path).names == (names[0], names[1], names[3], names[7])
    out, err = capfd.readouterr()
    assert err == "" and "\x1b" not in out
    assert "its name stands 2 times in the schema" in out and "nested values have no" in out
