"""Records of any kind are read independently of each other; a unit is the same in every source.

That all sources give the same counts is tested in ``tests/contracts/test_sources.py``.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import gzip
import pathlib
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from fakes import DOMAIN, outputs, write_avro
from versions import since

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.encoding.units import arrow_column, unit_fingerprints
from beam_dp.transforms import EncodeRecords, LimitContributions, ReadRecords
from beam_dp.transforms.reading.formats import FORMATS, Wanted, format_of


class Unwilling(Mapping[str, Any]):
    """A mapping that fails, as a lazily parsed record may."""

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError

    def __len__(self) -> int:
        raise RuntimeError


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
    "none": ([MADE_UP, ROW, NO_MAPPING], [OTHER, ROW]),
    "null": ([MADE_UP, ROW, NO_MAPPING, None], [OTHER, ROW]),
    "unwilling": ([MADE_UP, ROW, NO_MAPPING, Unwilling()], [OTHER, ROW]),
    "empty": ([MADE_UP, ROW, NO_MAPPING, {}], [OTHER, ROW]),
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
    domain = Domain((IntegerAttribute("age", 0, 9),))
    found = outputs(
        {
            "mixed": lambda p: encoded(p, [mixed], "who"),
            "no unit": lambda p: encoded(p, [TWICE.drop(columns="who")], "who"),
            "one by one": lambda p: encoded(p, ROWS, "who"),
            "an odd unit": lambda p: encoded(p, [odd("who")], "who"),
            "addresses": lambda p: encoded(p, tables, "who"),
            "as written": lambda p: (
                p | ReadRecords(f"{tmp_path}/a.csv") | EncodeRecords(domain, "age", as_cells=True)
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


@pytest.mark.job
def test_unit_in_two_files_is_limited_as_one_unit(tmp_path):
    """As pandas writes a column of integers: with a missing value they all become floats."""
    (tmp_path / "a.csv").write_text("id,age\n7,1\n8,2\n")
    (tmp_path / "b.csv").write_text("id,age\n7.0,3\n,4\n9.0,5\n")
    domain = Domain((IntegerAttribute("age", 0, 9),))
    read = ReadRecords(f"{tmp_path}/*.csv")
    encode = EncodeRecords(domain, "id", as_cells=True)
    limit = LimitContributions(domain, 1, cost_limit=None)
    found = outputs({"kept": lambda p: p | read | encode | limit})
    kept = np.concatenate([batch.cells for batch in found["kept"]])
    assert len(kept) == 3 and {2, 5} <= set(kept.tolist())


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
