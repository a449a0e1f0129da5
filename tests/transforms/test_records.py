"""Records of any kind are read independently of each other; a unit is the same in every source.

That all sources give the same counts is tested in ``tests/contracts/test_sources.py``.
"""

from __future__ import annotations

import base64
import collections
import dataclasses
import datetime
import decimal
import gzip
import io
import pathlib
import typing
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pyarrow.parquet as pq
import pytest
from fakes import DOMAIN, outputs, write_avro
from pyarrow.parquet import encryption
from versions import since

import beam_dp as dp
from beam_dp.secret.encoding.records import encode_column
from beam_dp.secret.encoding.units import arrow_column, unit_fingerprints
from beam_dp.transforms.counting.summarise import EncodeRecords
from beam_dp.transforms.job_page import ReadError
from beam_dp.transforms.reading.formats import FORMATS, Wanted, format_of
from beam_dp.transforms.reading.read import _SplitFile


class Person(typing.NamedTuple):
    age: int
    sex: str
    smokes: bool | None
    household: int


class Household(beam.Row):
    pass


class Labelled(Person):
    """A tuple whose class and objects name its fields in different orders."""

    def __init__(self, *values: Any) -> None:
        self._fields = ("sex", "age", "smokes", "household")


@dataclasses.dataclass(init=False, eq=False)
class Noted(Person):
    note: int = 0


class UnwillingFrame(pd.DataFrame):
    """A class of the user's own that fails."""

    @property
    def iloc(self) -> Any:
        raise RuntimeError("of 40 records")


ROWS: list[dict[str, Any]] = [
    {"age": i % 9, "sex": "fm"[i % 2], "smokes": (True, False, None)[i % 3], "who": i // 2}
    for i in range(20)
]
ROW = {"age": 0, "sex": "f", "smokes": True, "who": 7}
OTHER = {"age": 1, "sex": "f", "smokes": None, "who": 7}
MADE_UP = collections.defaultdict(bool, age=1, sex="f", who=7)  # has no column smokes
NO_MAPPING = np.zeros(1, [("age", int), ("sex", "U1"), ("smokes", bool)])[0]
FRAME, OBJECTS = pd.DataFrame(ROWS), pd.DataFrame(ROWS, dtype=object)
LABELLED = FRAME.set_axis([*FRAME.columns[:-1], pd.NA], axis=1)
LABELLED.insert(0, "who", FRAME["who"].to_numpy())
TWICE = pd.DataFrame(
    [["a", "b", "m", 1, 1, None], ["a", "b", "f", 2, 2, None]],
    columns=["note", "note", "sex", "who", "age", "smokes"],
)
KINDS = {
    "a field as_dict": beam.Row(as_dict=1, **OTHER),
    "a class of rows": Household(**OTHER),
    "two lists of fields": Labelled(1, "f", None, 7),
    "tuple and dataclass": Noted(1, "f", None, 7),
}


def odd(column: str) -> pd.DataFrame:
    """A frame of which one value can't be compared."""
    frame = OBJECTS.copy()
    frame.at[7, column] = decimal.Decimal("sNaN")
    return frame


# Elements, and records that must be read as they are: in each case alone in its bundle.
ALIKE: dict[str, tuple[Sequence[Any], Sequence[Any]]] = {
    "none": ([MADE_UP, ROW, NO_MAPPING, {}], [OTHER, ROW]),
    **{f"{name}, alone": ([each] * 2, [OTHER] * 2) for name, each in KINDS.items()},
    **{
        f"{name}, among others": ([each, each, ROW, {}], [OTHER, OTHER, ROW])
        for name, each in KINDS.items()
    },
    "the first of repeated columns": (
        [TWICE],
        [{"age": 1, "sex": "m", "smokes": None}, {"age": 2, "sex": "f", "smokes": None}],
    ),
    "a frame that fails": ([UnwillingFrame(ROWS)], ROWS),
    "labels that can't be compared": ([LABELLED], ROWS),
    **{
        f"a {column} that can't be compared": ([odd(column)], [*ROWS[:7], *ROWS[8:]])
        for column in ("age", "sex", "smokes")
    },
}


def encoded(begin: Any, elements: Sequence[Any], unit: str = "record") -> Any:
    # As of a function that declares nothing.
    records = begin | beam.Impulse() | beam.FlatMap(lambda _: elements).with_output_types(Any)
    return records | EncodeRecords(DOMAIN, unit, as_cells=False)


def codes(batches: Sequence[Any], *, units: bool = False) -> list[tuple[int, ...]]:
    """The codes of each record, and its unit, in any order."""
    found: list[tuple[int, ...]] = []
    for batch in batches:
        columns = [*batch.codes, *(batch.units if units else ())]
        found += zip(*(column.tolist() for column in columns), strict=True)
    return sorted(found)


@pytest.mark.job
def test_reads_element_independently_of_other_elements():
    found = outputs(
        {
            f"{name}: {side}": lambda p, given=given: encoded(p, given)
            for name, sides in ALIKE.items()
            for side, given in zip(("found", "expected"), sides, strict=True)
        }
    )
    assert {name: codes(found[f"{name}: found"]) for name in ALIKE} == {
        name: codes(found[f"{name}: expected"]) for name in ALIKE
    }
    assert len(codes(found["a frame that fails: found"])) == len(ROWS)
    assert repr(found["none: found"][0]) == "EncodedBatch(secret)"


@pytest.mark.job
def test_unit_is_read_value_by_value(tmp_path):
    """What a value is read as does not depend on the others of its column."""
    values = [1, "1", 1.0, True, b"m", datetime.date(2024, 1, 1), "007", 2**70, None]
    mixed = pd.DataFrame({**OTHER, "who": pd.Series(values, dtype=object)})
    addresses = pa.array([number.to_bytes(8, "little") for number in range(5)], pa.binary(8))
    columns = {"age": [1] * 5, "sex": ["f"] * 5, "smokes": [True] * 5}
    # A pipeline learns in a worker that 8 bytes may be an address in memory: it refuses nothing.
    tables = [pa.table({**columns, "who": each}) for each in (addresses, range(5))]
    (tmp_path / "a.csv").write_text("age\n7\n07\n")
    domain = dp.Domain((dp.IntegerAttribute("age", 0, 9),))
    found = outputs(
        {
            "mixed": lambda p: encoded(p, [mixed], "who"),
            "no unit": lambda p: encoded(p, [TWICE.drop(columns="who")], "who"),
            "one by one": lambda p: encoded(p, ROWS, "who"),
            "an odd unit": lambda p: encoded(p, [odd("who")], "who"),
            "addresses": lambda p: encoded(p, tables, "who"),
            "as written": lambda p: (
                p
                | dp.ReadRecords(f"{tmp_path}/a.csv")
                | EncodeRecords(domain, "age", as_cells=True)
            ),
        }
    )
    fingerprints, valid = unit_fingerprints(arrow_column(values))
    assert [record[3:] for record in codes(found["mixed"], units=True)] == sorted(
        map(tuple, fingerprints[:, valid].T.tolist())
    )
    assert codes(found["no unit"]) == []
    assert len(codes(found["addresses"])) == 5
    whole, others = (codes(found[name], units=True) for name in ("one by one", "an odd unit"))
    assert len(set(whole)) == len(whole) == len(others) + 1 and set(others) < set(whole)
    (batch,) = found["as written"]
    assert batch.cells.tolist() == [7, 7] and batch.units[0, 0] != batch.units[0, 1]


IDS = [7, 2**53 + 1, -(2**63), 2**63 - 1]
TEXTS = [f"{each}.0" for each in IDS]


def units_of(path: pathlib.Path) -> set[tuple[int, int]]:
    found: set[tuple[int, int]] = set()
    file_format = format_of(str(path))
    assert file_format is not None
    for start, stop in file_format.ranges(str(path), path.stat().st_size):
        for batch in file_format.batches(str(path), start, stop, Wanted(["id"])):
            units, valid = unit_fingerprints(batch.column(0))
            assert valid.all()
            found |= set(map(tuple, units.T.tolist()))
    return found


@since("pyarrow", "20")  # earlier ones write no views
def test_unit_is_the_same_in_every_file_format(tmp_path):
    contents = {
        "texts.csv": "id,x\n" + "".join(f"{text},1\n" for text in TEXTS),
        "integers.csv": "id,x\n" + "".join(f"{each},1\n" for each in IDS),
        "quoted.csv": "id,x\n" + "".join(f'"{text}",1\n' for text in TEXTS),
        "odd.csv": "id,x\n" + "".join(f'{text},a"b\n' for text in TEXTS),
    }
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "texts.csv.gz").write_bytes(gzip.compress(contents["texts.csv"].encode()))
    columns: dict[str, pa.Array] = {
        str(kind): pa.array(TEXTS).cast(pa.binary()).cast(kind)
        for kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    }
    columns |= {"views": pa.array(TEXTS, pa.string_view()), "integers": pa.array(IDS)}
    columns |= {"dictionary": pa.array(TEXTS).dictionary_encode()}
    for name, column in columns.items():
        pyarrow.parquet.write_table(pa.table({"id": column}), tmp_path / f"{name}.parquet")
    kinds: dict[str, Any] = {
        "string": ("string", TEXTS),
        "bytes": ("bytes", [text.encode() for text in TEXTS]),
        "long": ("long", IDS),
        "union": (["null", "long", "double", "string"], [7.0, *IDS[1:3], TEXTS[3]]),
    }
    for name, (kind, values) in kinds.items():
        write_avro(tmp_path, kind, values, name, column="id")
    files = sorted(tmp_path.iterdir())
    assert len(files) == 16 and {format_of(str(path)) for path in files} == {*FORMATS.values()}
    expected = units_of(tmp_path / "integers.csv")
    assert len(expected) == 4
    assert {path.name: units_of(path) for path in files} == {path.name: expected for path in files}


SHORT_TEXTS = [*["a", "b"] * 500, None, ""]  # short, so that a dictionary would be read
X = dp.CategoricalAttribute("x", ("a", "b", ""), nullable=True)


def written(table: pa.Table, path: pathlib.Path, **options: Any) -> str:
    pq.write_table(table, path, row_group_size=600, **options)
    return str(path)


def read_column(path: str, column: str) -> pa.Array:
    batches = list(dp.ReadRecords(path).batches([column], []))
    return pa.chunked_array([batch.column(0) for batch in batches])


@pytest.mark.parametrize(
    "encoding", ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "dictionary"]
)
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()], ids=str)
def test_short_texts_are_read_in_every_encoding(tmp_path, encoding, kind):
    options = {"use_dictionary": False, "column_encoding": {"x": encoding}}
    table = pa.table({"x": pa.array(SHORT_TEXTS, kind)})
    path = written(table, tmp_path / "a.parquet", **options if encoding != "dictionary" else {})
    assert encode_column(X, read_column(path, "x")).tolist() == [*[0, 1] * 500, 3, 2]


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
def test_numbers_are_read_in_every_encoding_and_codec(tmp_path, compression):
    encodings = {"i": "DELTA_BINARY_PACKED", "f": "BYTE_STREAM_SPLIT", "b": "RLE"}
    table = pa.table({"i": range(100), "f": np.arange(100.0), "b": np.arange(100) < 50})
    options = {"use_dictionary": False, "column_encoding": encodings, "compression": compression}
    path = written(table, tmp_path / "a.parquet", data_page_version="2.0", **options)
    for name in encodings:
        assert read_column(path, name).to_pylist() == table[name].to_pylist()


def test_int96_times_of_all_years_are_themselves():
    """As nanoseconds of 64 bits, which Arrow reads by default, the year 9999 is 1816.

    Arrow 25 wrote the file; before Arrow 23, it wrote other times.
    """
    years = (1, 1500, 1816, 1969, 2021, 2263, 9999)
    times = [datetime.datetime(year, 12, 31, 23, 59, 59, 999_999) for year in years]
    table = pa.table({"t": pa.array([*times, None], pa.timestamp("us"))})
    path = str(pathlib.Path(__file__).parents[1] / "golden/int96.parquet")
    edges = (*(f"{year:04}-01-01T00:00" for year in years), "9999-12-31T23:59:59.999999")
    bins = dp.DatetimeAttribute("t", edges, nullable=True)
    column = read_column(path, "t")
    assert encode_column(bins, column).tolist() == [*range(len(years)), bins.null_code]
    assert unit_fingerprints(column)[0].tolist() == unit_fingerprints(table["t"])[0].tolist()


class Kms(encryption.KmsClient):
    """Keeps keys as they are."""

    def __init__(self, _: Any) -> None:
        encryption.KmsClient.__init__(self)

    def wrap_key(self, key: bytes, name: str) -> bytes:
        return base64.b64encode(key)

    def unwrap_key(self, key: bytes, name: str) -> bytes:
        return base64.b64decode(key)


@pytest.mark.parametrize("plaintext_footer", [True, False])
@pytest.mark.parametrize("algorithm", ["AES_GCM_V1", "AES_GCM_CTR_V1"])
def test_encrypted_file_is_refused(tmp_path, plaintext_footer, algorithm):
    """Without the refusal, a plain footer lets Arrow abort the process."""
    path = tmp_path / "a.parquet"
    how = encryption.EncryptionConfiguration(
        footer_key="f",
        column_keys={"c": ["secret"]},
        plaintext_footer=plaintext_footer,
        data_key_length_bits=128,
        encryption_algorithm=algorithm,
    )
    keys = encryption.CryptoFactory(Kms).file_encryption_properties(
        encryption.KmsConnectionConfig(), how
    )
    table = pa.table({"x": ["a"], "secret": [1]})
    with pq.ParquetWriter(path, table.schema, encryption_properties=keys) as writer:
        writer.write_table(table)
    with pytest.raises(dp.InputError, match="must not be encrypted"):
        dp.ReadRecords(str(path))
    with pytest.raises(ReadError, match=r"a\.parquet: must not be encrypted"):
        list(_SplitFile("", "parquet").process((str(path), path.stat().st_size)))


def with_footer(old: bytes, new: bytes) -> bytes:
    """A file with the columns x and y, and a change in the footer's entry of x."""
    sink = io.BytesIO()
    table = pa.table({"x": ["a", "b"], "y": ["a", "b"]})
    pq.write_table(table, sink, write_statistics=False, store_schema=False)
    content = sink.getvalue()
    start = content.index(b"\x19\x35\x00\x06\x10\x19\x18\x01x\x15\x02")
    end = start + 11
    return content[:start] + content[start:end].replace(old, new) + content[end:]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"\x01x\x15\x02", b"\x01x\x15\x06", "string, compressed as LZO"),
        (b"\x06\x10", b"\x06\x28", "string, of an unknown encoding"),
    ],
)
def test_codec_or_encoding_that_is_unknown_here_is_refused_before_the_job(
    tmp_path, old, new, reason
):
    path = tmp_path / "a.parquet"
    path.write_bytes(with_footer(old, new))
    source = dp.ReadRecords(str(path))
    source.check_column("domain", "y")  # a column that can be read
    for argument in ("domain", "privacy_unit", "key", "event_time"):
        with pytest.raises(dp.InputError, match=f"that can be read here .* it is {reason}"):
            source.check_column(argument, "x")
