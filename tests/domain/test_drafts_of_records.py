"""Drafts from files and frames of records reveal nothing about the records."""

import bz2
import datetime
import gzip
import json
import lzma
import pathlib
from typing import Any

import fastavro
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings, strategies as st

import beam_dp as dp
from beam_dp.cli.main import main

# Of pandas' own, on the way to Arrow.
pytestmark = pytest.mark.filterwarnings("ignore:Series.values")
CANARY = "Zebulon Quackenbush"


# In the place of a type that nothing declares.
OPEN = "open"


def types(source: Any) -> dict[str, Any]:
    """The declared type of each attribute, or that it is open."""
    kinds = {each["name"]: each["type"] for each in dp.domain_draft(source).attributes}
    return {name: OPEN if isinstance(kind, dict) else kind for name, kind in kinds.items()}


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


def test_parquet_footer_gives_only_names_and_types(tmp_path):
    path = written(tmp_path / "a.parquet", frame_of([CANARY] * 977, [83] * 977))
    found = pq.ParquetFile(path)
    statistics = found.metadata.row_group(0).column(1).statistics
    assert (statistics.min, found.metadata.num_rows) == (83, 977)
    draft = dp.domain_draft(path)
    text = draft.text()
    for secret in (CANARY, "83", "977", "pandas", "index", "1983"):
        assert secret not in text, secret
    assert types(path) == {
        "name": "categorical", "age": "numeric", "weight": "numeric", "town": "categorical",
        "alive": "boolean", "born": "date", "seen": "datetime",
    }  # fmt: skip
    assert not draft.open_points
    assert draft.discovered == ["name", "age", "weight", "town", "born", "seen"]
    assert isinstance(draft.domain(), dp.OpenDomain)


rows = st.lists(st.tuples(st.text(min_size=1, max_size=4), st.integers(0, 90)), min_size=1)


@pytest.mark.parametrize("kind", ["parquet", "arrow", "stream", "avro"])
@settings(max_examples=4)
@given(one=rows, other=rows)
def test_files_with_the_same_schema_give_the_same_draft(tmp_path_factory, kind, one, other):
    sources = (written_as(kind, tmp_path_factory.mktemp("rows"), rows) for rows in (one, other))
    first, second = (dp.domain_draft(source).text() for source in sources)
    assert first == second


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


def test_init_reveals_nothing_about_rows(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = []
    for name, age in ((CANARY, 83), ("Bo", 4)):
        written(tmp_path / "people.parquet", frame_of([name], [age]))
        assert main(["init", "people.parquet", "--output", "d.json"]) == 0
        said.append((capfd.readouterr(), (tmp_path / "d.json").read_bytes()))
        (tmp_path / "d.json").unlink()
    assert said[0] == said[1]


TEXT = pa.string()
TYPES: dict[str | None, list[pa.DataType]] = {
    "categorical": [
        pa.dictionary(pa.int8(), TEXT), pa.large_string(), pa.string_view(), pa.binary(4),
    ],
    "integer": [pa.dictionary(pa.int8(), pa.int64()), pa.uint64()],
    "numeric": [pa.float16(), pa.decimal128(9, 2)],
    "date": [pa.date64()],
    "datetime": [pa.timestamp("ns")],
    "boolean": [pa.bool8()],
    None: [
        pa.time32("s"), pa.duration("s"), pa.month_day_nano_interval(), pa.null(),
        pa.list_(TEXT), pa.struct([("a", pa.int8())]), pa.map_(TEXT, pa.int8()),
        pa.dense_union([pa.field("a", pa.int8())]),
    ],
}  # fmt: skip
CASES = [(kind, attribute) for attribute, kinds in TYPES.items() for kind in kinds]


@pytest.mark.parametrize(("kind", "attribute"), CASES, ids=str)
def test_arrow_type_gives_an_attribute_or_is_left_out(kind, attribute):
    draft = dp.domain_draft(pa.schema([pa.field("key", pa.bool_()), pa.field("x", kind)]))
    if attribute is None:
        assert [name for name, _ in draft.left_out] == ["x"]
    else:
        found = "numeric" if attribute == "integer" else attribute  # its bins are discovered
        assert [each["type"] for each in draft.attributes] == ["boolean", found]
        assert not draft.left_out


def test_nullable_column_gets_level_for_null():
    schema = pa.schema([pa.field("a", pa.bool_()), pa.field("b", pa.bool_(), nullable=False)])
    draft = dp.domain_draft(schema)
    nullable = {"name": "a", "type": "boolean", "nullable": True}
    assert draft.to_json() == {"attributes": [nullable, {"name": "b", "type": "boolean"}]}
    assert draft.domain().names == ("a", "b")


@pytest.mark.parametrize("name", ["a.parquet", "a.feather", "a.avro", "absent.parquet"])
def test_damaged_file_is_refused_without_quoting_it(tmp_path, name):
    path = tmp_path / name
    if "absent" not in name:
        path.write_bytes(f"PAR1{CANARY}PAR1".encode())
    with pytest.raises(dp.InputError, match=r"must be an? .* that (can be read|exists)") as caught:
        dp.domain_draft(str(path))
    assert CANARY not in str(caught.value) and "\n" not in str(caught.value)
    assert json.dumps(caught.value.args[1]) == json.dumps(str(path))


def test_hostile_parquet_names_are_kept_and_not_printed(tmp_path, capfd):
    names = ["q\"uo'te", "new\nline", "", "\x1b[31mred", "twice", "twice", "nested", "[b]"]
    columns = [pa.array([True])] * 6 + [pa.array([{"a": [1]}]), pa.array([False])]
    pq.write_table(pa.table(columns, names=names), tmp_path / "h.parquet")
    path = str(tmp_path / "d.json")
    assert main(["init", str(tmp_path / "h.parquet"), "--output", path]) == 0
    assert dp.read_domain(path).names == (names[0], names[1], names[3], names[7])
    out, err = capfd.readouterr()
    assert err == "" and "\x1b" not in out
    assert "its name occurs 2 times in the schema" in out and "nested values have no" in out


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


def test_pandas_frame_gives_names_and_types():
    draft = dp.domain_draft(pandas_frame())
    assert types(pandas_frame()) == {
        "row": "numeric", "name": "discover", "town": "categorical", "floor": "numeric",
        "text": "categorical", "age": "numeric", "small": "numeric", "weight": "numeric",
        "alive": "boolean", "seen": "datetime", "seen there": "datetime", "arrow": "date",
    }  # fmt: skip
    assert [name for name, _ in draft.left_out] == ["lasted", "month"]
    nullable = [each["name"] for each in draft.attributes if each.get("nullable")]
    assert nullable == ["town", "floor", "text", "small", "weight", "seen", "seen there", "arrow"]


def test_draft_of_a_pandas_frame_does_not_depend_on_values():
    text = dp.domain_draft(pandas_frame()).text()
    assert text == dp.domain_draft(pandas_frame("Bob", 7)).text()
    assert text == dp.domain_draft(pandas_frame().head(0)).text()
    assert CANARY not in text and "83" not in text


def test_arrow_table_gives_its_schema_without_the_values_of_dictionaries():
    table = pa.table({"age": [83], "town": pa.array([CANARY]).dictionary_encode()})
    text = dp.domain_draft(table).text()
    assert text == dp.domain_draft(table.schema).text()
    assert CANARY not in text and "83" not in text
    assert dp.domain_draft(table.to_batches()[0]).text() == text


def test_polars_frame_lists_the_values_of_an_enum_to_confirm():
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
    expected = {"sex": "categorical", "town": "categorical", "age": "numeric", "born": "date"}
    assert types(frame) == expected
    assert draft.attributes[0]["values"] == {"confirm": ["F", "M"]}
    assert [name for name, _ in draft.left_out] == ["id", "parts"]
    assert CANARY not in draft.text() and "83" not in draft.text()
    assert dp.domain_draft(frame.lazy()).text() == draft.text()


def csv_file(folder: pathlib.Path, text: str, encoding: str = "utf-8") -> str:
    (folder / "visits.csv").write_text(text, encoding=encoding)
    return str(folder / "visits.csv")


def test_csv_header_gives_attribute_names_whose_types_a_release_finds(tmp_path):
    text = f'age,"in, or out",person_id\r\n83,x,{CANARY}\r\n'
    source = csv_file(tmp_path, text, "utf-8-sig")
    draft = dp.domain_draft(source)
    assert types(source) == {"age": "discover", "in, or out": "discover", "person_id": OPEN}
    assert draft.identifiers == [point.attribute for point in draft.open_points] == ["person_id"]
    assert "remove this attribute" in draft.open_points[0].task
    assert CANARY not in draft.text() and "83" not in draft.text()
    with pytest.raises(dp.InputError, match="attribute 'person_id', type is open: 'remove this"):
        draft.domain()


CSV = b"age,sex\n1,F\n"
READ = {
    "plain.csv": CSV,
    "capital.CSV": CSV,
    "mark.csv": b"\xef\xbb\xbf" + CSV,
    "quoted.csv": b'"age","sex"\n',
    "old.csv": b"age,sex\r1,F\r",
    "a.csv.gz": gzip.compress(CSV),
    "two.csv.gz": gzip.compress(CSV[:5]) + gzip.compress(CSV[5:]),
    "a.csv.bz2": bz2.compress(CSV),
    "a.csv.xz": lzma.compress(CSV),
    "a.csv.zst": zstandard.compress(CSV),
}


@pytest.mark.parametrize("name", READ)
def test_init_and_jobs_read_the_same_names(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(READ[name])
    assert [each["name"] for each in dp.domain_draft(str(path)).attributes] == ["age", "sex"]
    assert dp.ReadRecords(str(path)).schemas == {str(path): ["age", "sex"]}


REFUSED = {
    "a.csv": {
        gzip.compress(CSV): r"compressed \(gzip\): name it \.csv\.gz",
        bz2.compress(CSV): "bzip2",
        lzma.compress(CSV): "xz",
        zstandard.compress(CSV): "Zstandard",
        b"PK\x03\x04\x14\0": "workbook",
        b"\xd0\xcf\x11\xe0": "workbook",
        b"PAR1\x15\x04": "Parquet",
        b"\0\x05\x16\x07\0\x02": "macOS",
        b"\n<!DOCTYPE html>\n<table>": "blank",
        b"<!DOCTYPE html>\n<table>": "HTML",
        b"secret;b;c\n1;2;3\n": r"one column\. Is its separator ';'\? Only commas",
        b"secret\tb\n": "a tab",
        CSV.decode().encode("utf-16"): "UTF-16",
    },
    "a.csv.gz": {CSV: "compression is damaged", gzip.compress(CSV)[:-9]: "ends too early"},
}


@pytest.mark.parametrize("name", REFUSED)
def test_both_say_what_is_wrong_with_other_files(tmp_path, name):
    path = tmp_path / name
    for content, reason in REFUSED[name].items():
        path.write_bytes(content)
        for read in (dp.domain_draft, dp.ReadRecords):
            with pytest.raises(dp.InputError, match=reason) as error:
                read(str(path))
            assert "secret" not in str(error.value)


def test_column_whose_quoted_name_has_a_semicolon_is_one_column(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('"age; in years"\n1\n')
    assert dp.ReadRecords(str(path)).schemas == {str(path): ["age; in years"]}


def test_jobs_read_parquet_by_every_extension_that_init_reads(tmp_path):
    for name in ("a.parquet", "a.pq", "a.PQ"):
        pq.write_table(pa.table({"x": ["a"]}), tmp_path / name)
        assert dp.domain_draft(str(tmp_path / name)).attributes[0]["name"] == "x"
        assert dp.ReadRecords(str(tmp_path / name)).file_format == "parquet"
