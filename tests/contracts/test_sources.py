"""Every source of records gives the same counts of the same rows, and a new one needs a case here.

All cases of a promise are branches of one pipeline. What sources do with files that are cut into
ranges, damaged or found anywhere is tested beside their code.
"""

from __future__ import annotations

import collections
import csv
import dataclasses
import decimal
import gzip
import io
import json
import os
import pathlib
import traceback
import typing
from collections.abc import Callable, Mapping
from typing import Any

import apache_beam as beam
import fastavro
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from fakes import outputs

import beam_dp as dp
from beam_dp.hashing.keys import HashKey, universe_elements
from beam_dp.hashing.projections import BlockSigns
from beam_dp.mechanisms.left_out import plan_left_out
from beam_dp.privacy.loss import Loss
from beam_dp.secret.summaries.histogram import HistogramAccumulator, MarginalsAccumulator
from beam_dp.secret.summaries.projection import ProjectionAccumulator
from beam_dp.transforms.counting.count_keys import (
    CountElements,
    EncodeKeys,
    KeyColumns,
    counts_of_shards,
)
from beam_dp.transforms.counting.summarise import EncodeRecords, Summarise, limited_records
from beam_dp.transforms.job_page import ReadError
from beam_dp.transforms.reading.formats import FORMATS, Wanted
from beam_dp.transforms.reading.read import Reading, ReadRecords, _ReadRange, _SplitFile
from beam_dp.transforms.reading.read_kafka import decode_json

SENTINEL = "canary-4711"


class Visit(typing.NamedTuple):
    age: int | None
    sex: str | None
    smokes: bool | None
    fare: float
    who: int | None


# Ages from -2 to 10, of which 0 to 9 are declared; three records each of 24 persons, four of one
# who is left out, and some of nobody.
VISITS = [
    Visit(
        None if i % 17 == 3 else i * 5 % 13 - 2,
        ("f", "m", None, "x")[i % 4 if i % 3 else 0],
        (True, False, None)[i // 3 % 3],
        i % 7 / 2,
        None if i % 19 == 7 else i // 3,
    )
    for i in range(72)
]
VISITS += [Visit(99, "f", None, number / 2, 24) for number in range(4)]
ROWS = [visit._asdict() for visit in VISITS]
IMPOSSIBLE: Any = [{"age": [[0, 1]], "smokes": [True]}]
DOMAIN = dp.Domain(
    (
        dp.IntegerAttribute("age", 0, 9, nullable=True),
        dp.CategoricalAttribute("sex", ("f", "m"), nullable=True),
        dp.BooleanAttribute("smokes", nullable=True),
        dp.NumericAttribute("fare", (0.0, 1.0, 3.0)),
    )
).with_impossible(IMPOSSIBLE)
WIDE = dp.Domain((*DOMAIN, dp.IntegerAttribute("who", 0, 2**62 - 1))).with_impossible(
    IMPOSSIBLE
)  # has no index
assert not WIDE.has_index
TABLES = [("age", "sex"), ("smokes", "fare"), ("age", "smokes", "fare")]
K = 2
OF_A_PERSON = dp.Guarantee(1.0, 0.0, "add_or_remove_one", "who", K)
LEFT_OUT = plan_left_out(WIDE, OF_A_PERSON, Loss.pure(0.95))


def cell_by_hand(visit: Visit) -> tuple[int, ...] | str:
    """The codes of a record, or what it is left out for."""
    if visit.age is not None and not 0 <= visit.age <= 9:
        return "age"
    if visit.sex == "x":
        return "sex"
    if visit.smokes is True and visit.age in (0, 1):
        return "impossible"
    age = 10 if visit.age is None else visit.age
    smokes = 2 if visit.smokes is None else int(visit.smokes)
    return age, ("f", "m", None).index(visit.sex), smokes, int(visit.fare >= 1)


BY_HAND = [cell_by_hand(visit) for visit in VISITS]
INSIDE = collections.Counter(each for each in BY_HAND if not isinstance(each, str))
assert min(collections.Counter(each for each in BY_HAND if isinstance(each, str)).values()) > 1


# Sources: each makes a transform from a folder that it may write to.


def as_csv() -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, Visit._fields)
    writer.writeheader()
    writer.writerows(
        {**row, "smokes": {None: ""}.get(row["smokes"], row["smokes"])} for row in ROWS
    )
    return text.getvalue().encode()


def as_parquet() -> bytes:
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(pa.Table.from_pylist(ROWS), sink, row_group_size=10)
    return sink.getvalue().to_pybytes()


def as_avro() -> bytes:
    kinds = {"age": "long", "sex": "string", "smokes": "boolean", "fare": "double", "who": "long"}
    fields = [{"name": name, "type": ["null", kind]} for name, kind in kinds.items()]
    target = io.BytesIO()
    schema = {"type": "record", "name": "Visit", "fields": fields}
    fastavro.writer(target, schema, ROWS, sync_interval=200)
    return target.getvalue()


FILES: Mapping[str, Callable[[], bytes]] = {
    "avro": as_avro,
    "parquet": as_parquet,
    "csv": as_csv,
    "csv.gz": lambda: gzip.compress(as_csv()),
}


def of_file(name: str) -> Callable[[pathlib.Path], beam.PTransform]:
    def source(folder: pathlib.Path) -> beam.PTransform:
        path = folder / f"visits.{name}"
        path.write_bytes(FILES[name]())
        return ReadRecords(str(path))

    return source


def of_elements(*elements: Any) -> Callable[[pathlib.Path], beam.PTransform]:
    def one_by_one(begin: Any) -> Any:
        # As of a function that declares no type.
        return begin | beam.Impulse() | beam.FlatMap(lambda _: elements).with_output_types(Any)

    return lambda folder: beam.ptransform_fn(one_by_one)()


def arrived(folder: pathlib.Path) -> beam.PTransform:
    """Files of a folder that is watched: the horizon is over, so that one look is enough."""
    (folder / "landing").mkdir()
    for number, part in enumerate(
        (pa.Table.from_pylist(ROWS[:30]), pa.Table.from_pylist(ROWS[30:]))
    ):
        path = folder / "landing" / f"{number}.parquet"
        pyarrow.parquet.write_table(part, path)
        os.utime(path, (1014, 1014))
    horizon = dp.Horizon(1000, 10, 3, 5)
    return dp.ReadArrivals(f"{folder}/landing/*.parquet", horizon, poll=1, settle=0, replay=True)


@dataclasses.dataclass
class Citizen:
    age: int | None
    sex: str | None
    smokes: bool | None
    fare: float
    who: int | None


FRAME = pd.DataFrame(ROWS)
OBJECTS = pd.DataFrame(ROWS, dtype=object)
TABLE = pa.Table.from_pylist(ROWS)
FRAMES: Mapping[str, pd.DataFrame] = {
    "as pandas infers it": FRAME,  # ages are floats, of which some are NaN
    "objects": OBJECTS,
    "objects, pandas' own null": OBJECTS.where(OBJECTS.notna(), pd.NA),
    "nullable types": FRAME.convert_dtypes(),
    "arrow types": FRAME.convert_dtypes(dtype_backend="pyarrow"),
    "categories": FRAME.astype({"sex": "category", "age": "category"}),
    "narrow": FRAME.astype({"age": np.float32, "fare": np.float32}),
    "sparse": FRAME.astype({"age": pd.SparseDtype(float)}),
    "more columns": FRAME.assign(other=[{1}] * len(FRAME)),
    "a named index": FRAME.set_index("who"),
    "several named indexes": FRAME.set_index(["sex", "who"]),
    "any index": FRAME.sample(frac=1, random_state=1),
}
SOURCES: Mapping[str, Callable[[pathlib.Path], beam.PTransform]] = {
    **{name: of_file(name) for name in FILES},
    "arrivals": arrived,
    "kafka": of_elements(*(decode_json(json.dumps(row).encode()) for row in ROWS)),
    "dicts": of_elements(*ROWS),
    "dicts, without the nulls": of_elements(
        *({name: each for name, each in row.items() if each is not None} for row in ROWS)
    ),
    "decimals and bytes": of_elements(
        *({**row, "fare": decimal.Decimal(str(row["fare"]))} for row in ROWS)
    ),
    "named tuples": of_elements(*VISITS),
    "rows": of_elements(*(beam.Row(**row) for row in ROWS)),
    "dataclasses": of_elements(*(Citizen(**row) for row in ROWS)),
    "declared tuples": lambda folder: beam.Create(VISITS).with_output_types(Visit),
    "declared frames": lambda folder: beam.Create([FRAME]),
    "table": of_elements(TABLE),
    "batches": of_elements(*TABLE.to_batches(max_chunksize=7)),
    **{f"frame: {name}": of_elements(frame) for name, frame in FRAMES.items()},
    "a mixture": of_elements(
        *ROWS[:9], *VISITS[9:20], beam.Row(**ROWS[20]), FRAME[21:30], OBJECTS[30:40], FRAME[:0],
        *(Citizen(**row) for row in ROWS[40:50]), pa.Table.from_pylist(ROWS[50:]),
    ),
}  # fmt: skip


def test_every_format_has_a_source():
    assert {name.removesuffix(".gz") for name in FILES} == FORMATS.keys()


def plain_codes(batch: Any) -> list[tuple[int, ...]]:
    return list(zip(*(column.tolist() for column in batch.codes), strict=True))


def promises(records: Any) -> Any:
    """All that is counted of some records, each with a label."""

    def labelled(label: str, found: Any, one_by_one: Callable[[Any], Any]) -> Any:
        return (
            found
            | f"List {label}" >> beam.FlatMap(one_by_one)
            | f"Label {label}" >> beam.Map(lambda each, label=label: (label, each))
        )

    def of_domain(batch: Any) -> list[tuple[int, ...]]:
        return list(zip(*(each.tolist() for each in DOMAIN.codes(batch.cells)), strict=True))

    inside, left_out = limited_records(
        records, WIDE, OF_A_PERSON, as_cells=False, unit_costs=None, left_out=LEFT_OUT
    )
    key = EncodeKeys(KeyColumns("sex", weight="who"), 30, HASH, "record")
    marginals = MarginalsAccumulator(WIDE, TABLES)
    wide = records | "Wide" >> EncodeRecords(WIDE, "record", as_cells=False)
    cells = records | "Cells" >> EncodeRecords(DOMAIN, "record", as_cells=True)
    return (
        labelled("cells", cells, of_domain),
        labelled("kept", inside, plain_codes),
        labelled("left out", left_out, lambda shard: [shard]),
        labelled("wide", wide | Summarise(marginals), lambda shard: [shard]),
        labelled(
            "keys",
            records | key,
            lambda batch: zip(batch.keys.tolist(), batch.weights.tolist(), strict=True),
        ),
        labelled(
            "projection",
            records | "To sum" >> key | "Sum keys" >> Summarise(PROJECTION),
            lambda shard: [shard],
        ),
        labelled("elements", records | "To list" >> key | CountElements(), lambda data: [data]),
    ) | beam.Flatten()


HASH = HashKey(4, np.arange(10, dtype=np.uint64), bytes(16))
SIGNS = BlockSigns(HASH, 64)
PROJECTION = ProjectionAccumulator(SIGNS)


def summarised(found: list[tuple[str, Any]]) -> dict[str, Any]:
    by_label: dict[str, list[Any]] = {}
    for label, each in found:
        by_label.setdefault(label, []).append(each)
    left_out = HistogramAccumulator(LEFT_OUT.domain).from_shards(by_label["left out"])
    wide = MarginalsAccumulator(WIDE, TABLES).from_shards(by_label["wide"])
    elements = counts_of_shards(by_label["elements"])
    return {
        **{name: collections.Counter(by_label[name]) for name in ("cells", "kept", "keys")},
        "projection": PROJECTION.from_shards(by_label["projection"]).sums.tolist(),
        "elements": dict(zip(elements.elements.tolist(), elements.counts.tolist(), strict=True)),
        "left out": left_out.counts.tolist(),
        "wide": {names: wide.tables[names].tolist() for names in TABLES},
    }


@pytest.mark.job
def test_every_source_gives_the_same_counts_of_the_same_rows(tmp_path):
    """Cells, at most k records a unit, records left out by their reason, tables, and keys."""
    made = {name: source(tmp_path) for name, source in SOURCES.items()}
    found = outputs(
        {name: lambda p, source=source: promises(p | source) for name, source in made.items()}
    )
    expected = summarised(found["dicts"])
    for name, each in found.items():
        assert summarised(each) == expected, name

    assert expected["cells"] == INSIDE
    persons = [visit.who for visit in VISITS]
    inside, outside = (
        collections.Counter(
            who
            for who, each in zip(persons, BY_HAND, strict=True)
            if who is not None and isinstance(each, str) == is_left_out
        )
        for is_left_out in (False, True)
    )
    of_units: collections.Counter[Any] = collections.Counter()
    for (*codes, who), number in expected["kept"].items():
        of_units[who] += number
        assert number <= INSIDE[tuple(codes)]
    assert of_units == {who: min(number, K) for who, number in inside.items()}
    assert min(max(inside.values()), max(outside.values())) > K
    assert sum(expected["left out"]) == sum(min(each, K) for each in outside.values())
    for names, table in expected["wide"].items():
        counts = np.zeros(WIDE.restrict(names).shape, np.int64)
        for visit, codes in zip(VISITS, BY_HAND, strict=True):
            if not isinstance(codes, str) and visit.who is not None:
                counts[tuple(codes[axis] for axis in DOMAIN.axes(names))] += 1
        assert table == counts.tolist()
    weights = collections.Counter(
        (int(universe_elements([visit.sex], HASH)[0]), min(visit.who, 30))
        for visit in VISITS
        if visit.sex is not None and visit.who
    )
    assert expected["keys"] == weights
    totals: collections.Counter[int] = collections.Counter()
    for (key, weight), number in weights.items():
        totals[key] += weight * number
    assert expected["elements"] == totals
    held = np.array([*totals], np.uint64), np.array([*totals.values()], np.int64)
    assert expected["projection"] == SIGNS.project(*held).tolist()


class CanaryError(Exception):
    """What no reader of a job's log may see."""


class Unwilling(dict):
    """A record whose fields can't be read, and whose texts would tell of it."""

    def __getitem__(self, name: str) -> Any:
        raise CanaryError(SENTINEL)

    get = __getitem__  # type: ignore[assignment]
    __repr__ = __str__ = lambda self: SENTINEL


# Records of a kind that a source may hold, and that count nowhere.
STRANGE: list[Any] = [
    7, "text", None, [], object, b"\xff", {}, {7: 8}, {"age": {"a": 1}}, {"age": 2**99},
    {"who": Unwilling()}, Unwilling(), {"age": SENTINEL}, beam.Row(other=SENTINEL),
    pa.table({"other": [SENTINEL]}), {**ROWS[0], "sex": object()}, {**ROWS[0], "fare": 1e300},
    {**ROWS[0], "fare": float("nan")}, {**ROWS[0], "age": decimal.Decimal("sNaN")},
]  # fmt: skip


class NotComparable(float):
    """Pandas compares the values of a column with themselves; one can make that fail for all."""

    def __ne__(self, other: object) -> bool:
        raise ArithmeticError


STRANGE_AGES = (decimal.Decimal("sNaN"), NotComparable(77), "\udcff", 10**5000, [1])
STRANGE_FRAME = pd.DataFrame(
    [*ROWS, *({**dict.fromkeys(Visit._fields), "age": each} for each in STRANGE_AGES)],
    dtype=object,
)
STRANGE_LINES = [b'1,"x,3', b'"', b"1,2", b"1,2,3,4,5,6,7", b"\xff\xfe", b'1,2,"']
STRANGE_MESSAGES = [b"{no record", b"7", b"[]", b"", b"\xff", b'{"age": {"a": 1}}', b"[" * 10**5]


@pytest.mark.job
def test_strange_records_change_no_count_of_others(tmp_path, caplog):
    """Nor does an error or a log tell of them."""
    lines = as_csv().splitlines(keepends=True)
    lines[5:5] = [each + b"\n" for each in STRANGE_LINES]
    (tmp_path / "strange.csv").write_bytes(b"".join(lines))
    messages = [json.dumps(row).encode() for row in ROWS]
    messages[3:3] = STRANGE_MESSAGES
    made = {
        "none": of_elements(*ROWS)(tmp_path),
        "elements": of_elements(*STRANGE, *ROWS[:30], *STRANGE, *ROWS[30:])(tmp_path),
        "each alone": of_elements(
            *(x for i, row in enumerate(ROWS) for x in (STRANGE[i % len(STRANGE)], row))
        )(tmp_path),
        "frame": of_elements(STRANGE_FRAME)(tmp_path),
        "csv": ReadRecords(str(tmp_path / "strange.csv")),
        "kafka": of_elements(*map(decode_json, messages))(tmp_path),
    }
    found = outputs(
        {name: lambda p, source=source: promises(p | source) for name, source in made.items()}
    )
    counts = {name: summarised(each) for name, each in found.items()}
    for name, each in counts.items():
        for kind in ("cells", "kept", "wide", "keys"):
            assert each[kind] == counts["none"][kind], (name, kind)
    assert counts["none"]["cells"] == INSIDE
    # But some of them count as records that are left out.
    assert sum(counts["elements"]["left out"]) > sum(counts["none"]["left out"])
    assert SENTINEL not in caplog.text


@beam.ptransform_fn
def cells(records: Any) -> Any:
    encode = EncodeRecords(DOMAIN, "record", as_cells=True)
    return records | encode | beam.FlatMap(lambda batch: batch.cells.tolist())


def read_by_a_worker(path: pathlib.Path, format_name: str) -> list[pa.RecordBatch]:
    step = _ReadRange(format_name)
    step.reading = Reading(Wanted(["age", "sex"]))
    ranges = _SplitFile("", format_name).process((str(path), path.stat().st_size))
    return [batch for each in ranges for batch in step.process(each)]


@pytest.mark.parametrize("name", FILES)
def test_error_of_a_damaged_file_names_the_file_and_quotes_nothing(name, tmp_path):
    """Text of a plain CSV file can't be damaged: a line that is no record is left out."""
    path = tmp_path / f"visits.{name}"
    whole = FILES[name]()
    if name == "csv":
        whole = gzip.compress(whole)
        path = path.with_suffix(".csv.gz")
    middle = len(whole) // 2
    for content in (
        whole[: middle - 20] + bytes(255 - byte for byte in whole[middle - 20 :][:400]),
        whole[:-3],
        b"secret" * 100,
        b"PAR1secretPAR1",
    ):
        path.write_bytes(content)
        with pytest.raises(ReadError) as error:
            read_by_a_worker(path, name.partition(".")[0])
        assert str(error.value).startswith(str(path)) and "\n" not in str(error.value)
        shown = "".join(traceback.format_exception(error.value)).replace(str(tmp_path), "")
        for word in ("secret", "pyarrow", "Arrow", "fastavro", "zlib", "gzip.py", "Female"):
            assert word not in shown


@pytest.mark.job
def test_job_stops_with_the_name_of_its_damaged_file(tmp_path):
    path = tmp_path / "visits.avro"
    path.write_bytes(as_avro())
    source = ReadRecords(str(path))
    path.write_bytes(as_avro()[:-3])
    with pytest.raises(Exception, match=r"visits\.avro: cannot be read") as error:
        outputs({"damaged": lambda p: p | source | cells()})
    assert type(error.value).__name__ == "ReadError"
