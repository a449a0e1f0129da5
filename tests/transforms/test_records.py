"""Records of any accepted kind, pandas frames too, are read independently of each other."""

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
from fakes import COLLECTED, DOMAIN, collect, pipeline, write_avro
from versions import since

from beam_dp.domain.attributes import BooleanAttribute, CategoricalAttribute
from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.encoding.units import arrow_column, unit_fingerprints
from beam_dp.errors import InputError
from beam_dp.summaries.histogram import HistogramAccumulator
from beam_dp.transforms import EncodeRecords, LimitContributions, ReadRecords, Summarise
from beam_dp.transforms.reading.formats import FORMATS, Wanted, format_of


@dataclasses.dataclass
class Citizen:
    age: int
    sex: str
    smokes: bool | None


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


PEOPLE = [Person(i % 12, "fmx"[i % 3], [True, False, None][i % 3], i // 2) for i in range(60)]
DICTS = [person._asdict() for person in PEOPLE]
INSIDE = [
    (p.age, "fm".index(p.sex), 2 if p.smokes is None else int(p.smokes))
    for p in PEOPLE
    if p.age < 10 and p.sex in "fm"
]


def cells(records: beam.PCollection[Any]) -> beam.PCollection[Any]:
    encode = EncodeRecords(DOMAIN, "record", as_cells=True)
    return records | encode | collect("encoded")


def collected() -> list[tuple[int, ...]]:
    return sorted(
        record
        for batch in COLLECTED["encoded"]
        for record in zip(*(c.tolist() for c in DOMAIN.codes(batch.cells)), strict=True)
    )


@pytest.mark.parametrize(
    "elements",
    [
        DICTS,
        PEOPLE,
        [beam.Row(**each) for each in DICTS],
        [Citizen(p.age, p.sex, p.smokes) for p in PEOPLE],
        [pa.Table.from_pylist(DICTS)],
        pa.Table.from_pylist(DICTS).to_batches(max_chunksize=7),
        [*DICTS[:20], *PEOPLE[20:40], beam.Row(**DICTS[40]), pa.Table.from_pylist(DICTS[41:])],
    ],
    ids=["dicts", "named tuples", "rows", "dataclasses", "table", "batches", "a mixture"],
)
def test_encodes_records_of_every_accepted_type(elements):
    with pipeline() as p:
        _ = cells(p | beam.Create(elements))
    assert collected() == sorted(INSIDE)


def test_drops_elements_that_are_not_records():
    junk: list[Any] = [7, "text", None, [], object, {"age": object()}, {}, {"age": {"a": 1}}]
    junk += [{"age": float("nan"), "sex": "f", "smokes": True}, {"age": 2**99}]
    with pipeline() as p:
        _ = cells(p | beam.Create([*junk, DICTS[0], *junk]))
    assert collected() == [(0, 0, 1)]


@pytest.mark.parametrize(
    "neighbours", [[], [None], [Unwilling()], [{}]], ids=["none", "null", "unwilling", "empty"]
)
def test_reads_element_independently_of_other_elements(neighbours):
    made_up = collections.defaultdict(bool, age=1, sex="f")  # has no column smokes
    table = np.zeros(1, [("age", int), ("sex", "U1"), ("smokes", bool)])  # no mapping
    with pipeline() as p:
        _ = cells(p | beam.Create([made_up, DICTS[0], table[0], *neighbours]))
    assert collected() == [(0, 0, 1), (1, 0, 2)]


class Household(beam.Row):
    pass


class Labelled(Person):
    """A tuple whose class and objects name its fields in different orders."""

    def __init__(self, *values: Any) -> None:
        self._fields = ("sex", "age", "smokes", "household")


@dataclasses.dataclass(init=False, eq=False)
class Noted(Person):
    note: int = 0


@pytest.mark.parametrize(
    "record",
    [
        beam.Row(as_dict=1, age=1, sex="f", smokes=None),
        Household(age=1, sex="f", smokes=None),
        Labelled(1, "f", None, 7),
        Noted(1, "f", None, 7),
    ],
    ids=["a field as_dict", "a class of rows", "two lists of fields", "tuple and dataclass"],
)
def test_reads_record_the_same_alone_and_among_others(record):
    for company, expected in ([], []), ([DICTS[0], {}], [(0, 0, 1)]):
        with pipeline() as p:
            records = beam.FlatMap(lambda _, all_of_them=[record, record, *company]: all_of_them)
            _ = cells(p | beam.Impulse() | records.with_output_types(object))
        assert collected() == [*expected, (1, 0, 2), (1, 0, 2)]


def test_codes_and_cells_encode_the_same_records():
    with pipeline() as p:
        records = p | beam.Create(DICTS)
        _ = records | EncodeRecords(DOMAIN, "household", as_cells=False) | collect("codes")
    (batch,) = COLLECTED["codes"]
    assert sorted(zip(*(c.tolist() for c in batch.codes), strict=True)) == sorted(INSIDE)
    assert batch.units.shape == (2, len(INSIDE))
    assert repr(batch) == "EncodedBatch(secret)"


def test_rejects_ambiguous_column_named_record(tmp_path):
    (tmp_path / "visits.csv").write_text("age,record\n1,2\n")
    records = beam.Pipeline() | ReadRecords(str(tmp_path / "visits.csv"))
    domain = Domain((IntegerAttribute("age", 0, 9),))
    with pytest.raises(InputError, match="privacy_unit: 'record' is also a column"):
        records | EncodeRecords(domain, "record", as_cells=True)


def test_rows_with_a_schema_are_checked_at_construction():
    with pytest.raises(InputError, match=r"domain: 'smoke' .*'smokes'"):
        domain = Domain((IntegerAttribute("smoke", 0, 1),))
        p = pipeline()
        _ = p | beam.Create(PEOPLE) | EncodeRecords(domain, "record", as_cells=True)
    with pytest.raises(InputError, match=r"domain: 'smoke' .*'smokes'"):
        p = pipeline()
        citizens = p | beam.Create([Citizen(1, "f", None)]).with_output_types(Citizen)
        _ = citizens | EncodeRecords(domain, "record", as_cells=True)
    with pytest.raises(InputError, match=r"privacy_unit: 'houshold' .*'household'"):
        p = pipeline()
        rows = p | beam.Create(PEOPLE) | beam.Select("age", "sex", "smokes", "household")
        _ = rows | EncodeRecords(DOMAIN, "houshold", as_cells=True)


def test_reads_unit_column_as_written(tmp_path):
    domain = Domain((IntegerAttribute("age", 0, 9),))
    (tmp_path / "a.csv").write_text("age\n7\n07\n")
    with pipeline() as p:
        records = p | ReadRecords(str(tmp_path / "a.csv"))
        _ = records | "As number" >> EncodeRecords(domain, "record", as_cells=True)
        _ = records | EncodeRecords(domain, "age", as_cells=True) | collect("encoded")
    (batch,) = COLLECTED["encoded"]
    assert batch.cells.tolist() == [7, 7]
    assert batch.units[0, 0] != batch.units[0, 1]


def count(records: beam.PCollection[Any], k: int) -> beam.PCollection[Any]:
    return (
        records
        | EncodeRecords(DOMAIN, "household", as_cells=True)
        | LimitContributions(DOMAIN, k, cost_limit=None, num_partitions=4)
        | Summarise(HistogramAccumulator(DOMAIN))
    )


@pytest.mark.slow
@pytest.mark.parametrize("bundle_repeat", [0, 2])
def test_keeps_the_same_records_of_a_unit_in_any_order(bundle_repeat):
    people = [dict(each, age=i % 10, sex="fm"[i % 2]) for i, each in enumerate(DICTS)]
    people += [dict(people[0], age=i % 10, household=99) for i in range(1000)]
    people += [dict(people[0], household=None), dict(people[0], household=float("nan"))]
    people += [dict(people[0], age=50, household=98)]
    with pipeline(bundle_repeat) as p:
        orders = {"forward": people, "backward": people[::-1]}
        for name, order in orders.items():
            _ = (
                p
                | f"Create {name}" >> beam.Create(order)
                | name >> beam.ptransform_fn(count)(1)
                | collect(name)
            )
        records = p | "Shuffled" >> beam.Create(people) | beam.Reshuffle()
        _ = records | "shuffled" >> beam.ptransform_fn(count)(1) | collect("shuffled")
    accumulator = HistogramAccumulator(DOMAIN)
    forward, *others = (
        accumulator.from_shards(set(COLLECTED[name])).counts.tolist()
        for name in ("forward", "backward", "shuffled")
    )
    assert sum(forward) == 30 + 1
    assert others == [forward, forward]


FRAME_DOMAIN = Domain(
    (
        IntegerAttribute("age", 0, 9, nullable=True),
        CategoricalAttribute("sex", ("f", "m"), nullable=True),
        BooleanAttribute("smokes", nullable=True),
    )
)
FRAME_ROWS: list[dict[str, Any]] = [
    {
        "age": (i % 9, None)[i % 7 == 3],
        "sex": ("f", "m", None)[i % 3],
        "smokes": (True, False, None)[i // 3 % 3],
        "who": i // 2,
    }
    for i in range(40)
]
Encoded = list[tuple[int, ...]]


def encoded(elements: Sequence[Any], unit: str = "who") -> Encoded:
    """The codes and the unit of each record, in any order."""
    with pipeline() as p:
        # As of a function that declares nothing.
        records = p | beam.Impulse() | beam.FlatMap(lambda _: elements).with_output_types(Any)
        _ = records | EncodeRecords(FRAME_DOMAIN, unit, as_cells=False) | collect("encoded")
    found = []
    for batch in COLLECTED["encoded"]:
        columns = [*batch.codes, *batch.units]
        found += list(zip(*(column.tolist() for column in columns), strict=True))
    return sorted(found)


FRAME = pd.DataFrame(FRAME_ROWS)
OBJECTS = pd.DataFrame(FRAME_ROWS, dtype=object)
FRAMES = {
    "as pandas infers it": FRAME,  # ages are floats, of which some are NaN
    "objects": OBJECTS,
    "objects, pandas' own null": OBJECTS.where(OBJECTS.notna(), pd.NA),
    "nullable types": FRAME.convert_dtypes(),
    "arrow types": FRAME.convert_dtypes(dtype_backend="pyarrow"),
    "categories": FRAME.astype({"sex": "category", "age": "category"}),
    "narrow": FRAME.astype({"age": np.float32, "who": np.int8}),
    "sparse": FRAME.astype({"age": pd.SparseDtype(float)}),
    "more columns": FRAME.assign(other=[{1}] * len(FRAME)),
    "a named index": FRAME.set_index("who"),
    "several named indexes": FRAME.set_index(["sex", "who"]),
    "any index": FRAME.sample(frac=1, random_state=1),
}


@pytest.mark.mostly_slow(one_in=2, start=1)
@pytest.mark.parametrize("kind", FRAMES)
def test_frame_is_read_like_its_rows(kind):
    expected = encoded(FRAME_ROWS)
    assert len(expected) == len(FRAME_ROWS)
    assert encoded([FRAMES[kind]]) == expected


def test_reads_frames_and_single_records_together():
    assert encoded([FRAME[:7], *FRAME_ROWS[7:20], OBJECTS[20:], FRAME[:0]]) == encoded(FRAME_ROWS)


def test_accepts_frame_of_a_declared_type():
    with pipeline() as p:
        encode = EncodeRecords(FRAME_DOMAIN, "who", as_cells=True)
        _ = p | beam.Create([FRAME]) | encode | collect("a")
    assert sum(len(batch.cells) for batch in COLLECTED["a"]) == len(FRAME)


def test_reads_mixed_values_one_by_one():
    """What a value is read as does not depend on the others of its column."""
    values = [1, "1", 1.0, True, b"m", datetime.date(2024, 1, 1), "007", 2**70, None]
    frame = pd.DataFrame({"who": pd.Series(values, dtype=object), "sex": "m"})
    fingerprints, valid = unit_fingerprints(arrow_column(values))
    assert [record[3:] for record in encoded([frame])] == sorted(
        map(tuple, fingerprints[:, valid].T.tolist())
    )


def test_reads_first_of_repeated_columns_and_missing_column_as_null():
    twice = pd.DataFrame([["m", "f", 1], ["f", "m", 2]], columns=["sex", "sex", "who"])
    single = [{"sex": "m", "who": 1}, {"sex": "f", "who": 2}]
    assert encoded([twice]) == encoded(single)
    assert encoded([twice.drop(columns="who")]) == []


class UnwillingFrame(pd.DataFrame):
    """A class of the user's own that fails."""

    @property
    def iloc(self) -> Any:
        raise RuntimeError("of 40 records")


def test_reads_frame_whose_subclass_raises():
    assert encoded([UnwillingFrame(FRAME_ROWS)]) == encoded(FRAME_ROWS)


@pytest.mark.parametrize("column", ["age", "sex", "smokes", "who"])
def test_incomparable_value_drops_only_its_own_record(column):
    frame = OBJECTS.copy()
    frame.at[7, column] = decimal.Decimal("sNaN")
    others = encoded([*FRAME_ROWS[:7], *FRAME_ROWS[8:]])
    found = encoded([frame])
    assert [each for each in found if each in others] == others
    assert len(found) <= len(FRAME_ROWS)


def test_ignores_column_labels_that_cannot_be_compared():
    labelled = FRAME.set_axis([*FRAME.columns[:-1], pd.NA], axis=1)
    labelled.insert(0, "who", FRAME["who"].to_numpy())
    assert encoded([labelled]) == encoded(FRAME_ROWS)


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


def test_unit_in_two_files_is_limited_as_one_unit(tmp_path):
    """As pandas writes a column of integers: with a missing value they all become floats."""
    (tmp_path / "a.csv").write_text("id,age\n7,1\n8,2\n")
    (tmp_path / "b.csv").write_text("id,age\n7.0,3\n,4\n9.0,5\n")
    domain = Domain((IntegerAttribute("age", 0, 9),))
    with pipeline() as p:
        encoded = p | ReadRecords(f"{tmp_path}/*.csv") | EncodeRecords(domain, "id", as_cells=True)
        _ = encoded | LimitContributions(domain, 1, cost_limit=None) | collect("kept")
    kept = np.concatenate([batch.cells for batch in COLLECTED["kept"]])
    assert len(kept) == 3 and {2, 5} <= set(kept.tolist())


def test_drops_arrow_records_whose_8_byte_unit_may_be_a_memory_address():
    """A pipeline learns the type in a worker, where it refuses nothing."""
    domain = Domain((IntegerAttribute("x", 0, 9),))
    addresses = pa.array([number.to_bytes(8, "little") for number in range(5)], pa.binary(8))
    tables = [pa.table({"x": [1] * 5, "id": each}) for each in (addresses, range(5))]
    with pipeline() as p:
        encode = EncodeRecords(domain, "id", as_cells=True)
        _ = p | beam.Create(tables) | encode | collect("kept")
    assert sum(len(each.cells) for each in COLLECTED["kept"]) == 5
