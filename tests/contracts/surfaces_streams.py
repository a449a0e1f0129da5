"""Sources of records, transforms, windows, hashes and summaries.

Refusals name all that this module imports or defines.
"""
# ruff: noqa: F401

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import gzip
import json
import pathlib
import typing
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import open_domains
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import zstandard
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.utils.timestamp import Duration, Timestamp
from jobs import everything_under, write_table
from program_jobs import words_of
from surfaces import Program, Surface, but_for

import beam_dp as dp
from beam_dp.domain.attributes import PaidRelease
from beam_dp.domain.horizon import Blocks
from beam_dp.hashing.keys import HashKey, universe_elements
from beam_dp.hashing.projections import BlockSigns, DenseSigns
from beam_dp.mechanisms.intervals import plan_attribute, plan_intervals
from beam_dp.mechanisms.sketches.mechanisms import CountSketch
from beam_dp.privacy.ledger.entries import Token
from beam_dp.secret.encoding.open_values import OpenColumns
from beam_dp.secret.summaries.histogram import (
    Histogram,
    HistogramAccumulator,
    Marginals,
    MarginalsAccumulator,
)
from beam_dp.secret.summaries.projection import ProjectionAccumulator
from beam_dp.storage.avro import HEADER, MAGIC, encode
from beam_dp.transforms.counting.count_keys import CountUnits, CountValues
from beam_dp.transforms.counting.count_windows import CountWindows
from beam_dp.transforms.counting.summarise import EncodeRecords
from beam_dp.transforms.intervals import ReleasePlannedIntervals
from beam_dp.transforms.job_page import ReadError
from beam_dp.transforms.reading.avro_blocks import MAX_DEPTH
from beam_dp.transforms.reading.formats import Wanted
from beam_dp.transforms.reading.read import Reading, _ReadRange, _SplitFile
from beam_dp.transforms.reading.read_arrivals import SeenFiles
from pipelines import answer_queries

AGE = dp.Domain((dp.IntegerAttribute("age", 0, 9),))
PEOPLE = dp.Domain(
    (
        dp.IntegerAttribute("age", 0, 9),
        dp.CategoricalAttribute("sex", ("f", "m")),
        dp.BooleanAttribute("smokes", nullable=True),
    )
)
TABLE = pa.table({"age": [1, 2], "sex": ["f", "m"], "smokes": [True, None], "who": [1, 2]})


def integers(*sizes: int) -> dp.Domain:
    """A domain whose attributes a0, a1, ... have so many levels."""
    return dp.Domain(
        tuple(dp.IntegerAttribute(f"a{i}", 0, size - 1) for i, size in enumerate(sizes))
    )


def promise(unit: str = "record", k: int = 1, epsilon: float = 1.0) -> dp.Guarantee:
    return dp.Guarantee(epsilon, 1e-9, "add_or_remove_one", unit, k)


# Windows.


horizon = but_for(dp.Horizon, start=0, window=3600, num_windows=2, grace=0)
window_unit = but_for(
    dp.WindowUnit,
    privacy_unit="person",
    max_records_per_unit=3,
    max_windows_per_unit=7,
    protected_windows=24,
)
SIX = dp.Horizon(100, 10, 6, 5)
RECORD = dp.WindowUnit("record", 1, 1, 1)
ROW = {"age": 1, "t": 131, "arrival": 131, "person": 1, "plane": 1}


def windows_plan(unit: dp.WindowUnit = RECORD, epsilon: float = 2.0, domain: Any = AGE) -> Any:
    return dp.plan_window_tables(dp.marginals(domain, ways=1), SIX, unit, epsilon, 0.0)


PLANES, PERSONS = (windows_plan(dp.WindowUnit(name, 1, 1, 6)) for name in ("plane", "person"))
FIRST = {"event_time": "t", "arrival": "arrival"}
TOPIC = {"topic": "visits", "num_partitions": 2}


def begin(folder: pathlib.Path, plan: Any, times: Mapping[str, str] = FIRST, **more: Any) -> str:
    return dp.begin_windows(plan, folder / "out", replayable=True, **{**times, **more})


def continued(
    folder: pathlib.Path,
    *,
    plan: Any = None,
    first: Any = None,
    times: Sequence[str] = ("t", "arrival"),
    sources: tuple[Any, Any] = (None, None),
    flags: Sequence[str] = (),
    card: Mapping[str, Any] | None = None,
) -> Any:
    """A horizon that a first job began, and that a second one with other arguments continues."""
    first = windows_plan() if first is None else first
    of_first = {} if sources[0] is None else {"source": sources[0]}
    horizon_id = begin(folder, first, **of_first)
    if card is not None:
        path = folder / "out" / "horizon.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **card}))
    rows = beam.Pipeline(options=PipelineOptions(list(flags))) | beam.Create([ROW])
    if sources[1] is not None:
        rows.source = sources[1]
    plan = first if plan is None else plan
    return rows | dp.ReleaseWindows(plan, folder / "out", horizon_id, *times)


def counted_windows(rows: Any, columns: Sequence[str] = ("t", "t"), domain: Any = AGE) -> Any:
    return rows | CountWindows(domain, SIX, RECORD, *columns, unit_costs=None)


# Files.

CONTENTS: Mapping[str, bytes] = {
    "a.csv": b"age,twice,twice\nsecret,2,3\n",
    "record.csv": b"age,record\n1,2\n",
    "bad.csv": b'a,"b\nsecret\n',
    "a.txt": b"age\n1\n",
    "empty.csv": b"",
    "empty2.csv": b"\xef\xbb\xbf",
    "junk.parquet": b"secret" * 100,
    "junk.avro": b"secret" * 100,
}


def read(folder: pathlib.Path, pattern: str, **arguments: Any) -> dp.ReadRecords:
    """Reads files of which some are damaged; no message may quote what they contain."""
    for name, content in CONTENTS.items():
        (folder / name).write_bytes(content)
    (folder / "folder.csv").mkdir()
    return unquoted(
        dp.ReadRecords, pattern if "://" in pattern else f"{folder}/{pattern}", **arguments
    )


def unquoted(call: Any, *given: Any, **named: Any) -> Any:
    try:
        return call(*given, **named)
    except dp.InputError as error:
        assert "secret" not in str(error)
        raise


def of_bytes(folder: pathlib.Path, name: str, content: bytes) -> dp.ReadRecords:
    """Reads a file; a job that is the first to look into it says the same of it."""
    path = folder / name
    path.write_bytes(content)
    try:
        return unquoted(dp.ReadRecords, str(path))
    except dp.InputError as error:
        condition = str(error).partition(" is not valid: ")[2]
        kind = path.suffixes[0][1:]
        step = _ReadRange(kind)
        step.reading = Reading(Wanted(["x"]))
        try:
            for part in _SplitFile("", kind).process((str(path), len(content))):
                list(step.process(part))
        except ReadError as of_job:
            assert condition in str(of_job), of_job
        else:
            raise AssertionError("accepted by a job") from None
        raise


def avro(folder: pathlib.Path, schema: Any, codec: str = "null") -> dp.ReadRecords:
    """Reads a container whose block would lead a reader of a recursive schema ever deeper."""
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    meta = {"avro.schema": text, "avro.codec": codec.encode()}
    header = encode(HEADER, {"magic": MAGIC, "meta": meta, "sync": bytes(16)})
    block = encode("long", 1) + encode("bytes", b"\2\2" * 5000 + b"\2\0") + bytes(16)
    return of_bytes(folder, "a.avro", header + block)


def avro_record(name: str, *types: Any, **more: Any) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields, **more}


def avro_arrays(depth: int) -> Any:
    """Arrays in each other."""
    kind: Any = "long"
    for _ in range(depth):
        kind = {"type": "array", "items": kind}
    return kind


def avro_chain(length: int) -> dict[str, Any]:
    """Each record holds the one before it, by its name: no bracket tells how deep that is."""
    links = [avro_record(f"A{i}", f"A{i - 1}") for i in range(1, length)]
    return avro_record("R", "long", avro_record("A0", "long"), *links)


def parquet(folder: pathlib.Path, column: pa.Array) -> dp.ReadRecords:
    """Reads a file of one column, which is named a."""
    pyarrow.parquet.write_table(pa.table({"a": column}), folder / "a.parquet")
    return dp.ReadRecords(f"{folder}/a.parquet")


def arrivals(
    folder: pathlib.Path, pattern: str | None = None, columns: Any = None, **changed: Any
) -> Any:
    """Watches a folder, with one file of these columns."""
    if columns is not None:
        pyarrow.parquet.write_table(pa.table(columns), folder / "1.parquet")
    given = {"poll": 1, "settle": 0, **changed}
    return dp.ReadArrivals(f"{folder}/*.parquet" if pattern is None else pattern, SIX, **given)


FILE_TIME = ("event", "file_time")


def seen_files(folder: pathlib.Path, output: str, private: str | None) -> Any:
    """Begins a list of files, which may write nothing if it is refused."""
    (folder / "a-file").touch()
    places = [each and each.replace("FOLDER", str(folder)) for each in (output, private)]
    try:
        return SeenFiles(*places).begin("1" * 32, may_be_new=True)  # type: ignore[arg-type]
    finally:
        assert [path.name for path in folder.iterdir()] == ["a-file"]


# Records.


class Plain:
    """An object with attributes is not a record."""


class Person(typing.NamedTuple):
    age: int


class Plainly(enum.Enum):
    """An enumeration whose members are not strings."""

    F = "f"


def declared(kind: Any) -> Any:
    return beam.Pipeline() | beam.Create([None]).with_output_types(kind)


def encoded(records: Any, unit: str = "record", domain: dp.Domain = AGE) -> Any:
    return records | EncodeRecords(domain, unit, as_cells=True)


def field(kind: Any) -> Any:
    """Encodes records whose column age is declared so: as tuples, dataclasses and rows."""
    fields = [("age", kind), ("who", kind)]
    schemas = [
        typing.NamedTuple("Tupled", fields),
        dataclasses.make_dataclass("Classed", fields),
        beam.typehints.row_type.RowTypeConstraint.from_fields(fields),
    ]
    messages = []
    for schema in schemas:
        try:
            encoded(declared(schema))
        except dp.InputError as error:
            messages.append(error)
    # The third way may show a record within a record in another form.
    assert len(messages) == 3 and str(messages[0]) == str(messages[1])
    raise messages[0]


def grouped() -> Any:
    pairs = beam.Pipeline() | beam.Create([{"age": 5}]) | beam.WithKeys(lambda each: each["age"])
    return pairs | beam.GroupByKey()


def keyed(**columns: Any) -> Any:
    """Releases a sketch of records of which one column has a type without keys."""
    plan = CountSketch(3 * 64).plan(promise(), max_sparsity=2)
    fields = [(name, Timestamp if name == "age" else int) for name in columns.values()]
    records = declared(typing.NamedTuple("Visit", fields))
    return records | dp.ReleaseProjection(
        plan, dp.KeyColumns(columns["key"], weight=columns["weight"])
    )


OPEN = OpenColumns(None, (dp.CategoricalAttribute("city", ("x",), other=True),), ())


# Releases.


def release(folder: pathlib.Path, table: Any, unit: str = "record", **changed: Any) -> Any:
    """Releases a table in memory; what is refused is neither paid for nor written."""
    ledger = dp.Ledger(f"sqlite:///{folder / 'ledger.sqlite'}")
    ledger.declare("people", 5, 1e-6, unit, "add_or_remove_one")
    given = {"output": folder / "out", "ledger": ledger, "dataset_id": "people", **changed}
    before = everything_under(folder)
    mechanism = given.pop("mechanism", dp.MWEM())
    domain, workload = given.pop("domain", PEOPLE), given.pop("workload", None)
    try:
        return dp.release(
            table,
            domain,
            dp.marginals(domain, ways=1) if workload is None else workload,
            given.pop("guarantee", promise(unit)),
            mechanism=mechanism,
            **given,
        )
    finally:
        assert ledger.entries("people") == [] and everything_under(folder) == before


class Unreadable:
    """A table that another library can't hand over."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise RuntimeError("secret")


class Broken:
    """A table that fails behind its first batch, with an error that quotes a record."""

    def __init__(self, kind: type[Exception]) -> None:
        self.kind = kind

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        def batches() -> Iterator[pa.RecordBatch]:
            yield from TABLE.to_batches()
            raise self.kind("secret")

        return pa.RecordBatchReader.from_batches(TABLE.schema, batches()).__arrow_c_stream__()


def of_type(name: str, column: pa.Array) -> pa.Table:
    table = TABLE.drop([name]) if name in TABLE.column_names else TABLE
    return table.append_column(name, column)


ADDRESSES = pa.array([b"12345678"] * 2, pa.binary(8))
BIG = dp.Domain(tuple(dp.IntegerAttribute(f"a{n}", 0, 999) for n in range(4)))
QUERIES = dp.parse_linear_workload('{"marginal": ["age"]}', AGE)
ANSWERS = dp.plan_workload_answers(QUERIES, promise(), 10)
SKETCH = CountSketch(3 * 64).plan(promise(), max_sparsity=2)
TABLES = dp.Laplace().plan(AGE, dp.marginals(AGE, ways=1), promise(), "noisy")
INTERVALS = plan_attribute(AGE, "age", promise(), "tree")
ONLINE = dp.plan_private_mw(AGE, promise(), 10, num_questions=2)
SPARSE = dp.plan_sparse_mw(promise(), 10, max_sparsity=2, num_questions=2)


def stream(runner: str = "FnApiRunner", *, unbounded: bool = False) -> Any:
    """The queries of a run that is to be saved."""
    asked = beam.Pipeline(runner) | "Queries" >> beam.Create(['{"prefix": 2}'])
    asked.is_bounded = not unbounded
    held = asked.pipeline | "Records" >> beam.Create([{"age": 3}])
    return asked, held


def answered(asked: Any, held: Any, plan: Any = ONLINE, **more: Any) -> Any:
    return asked | dp.AnswerQueries(plan, held, **more)


def unbounded(records: Any) -> Any:
    records.is_bounded = False
    return records


def second(**changed: Any) -> Any:
    """The second pipeline of a release whose domain a first one discovered."""
    found = open_domains.domain_release()
    given = {
        "domain": found.domain,
        "workload": dp.marginals(found.domain, ways=1),
        "guarantee": open_domains.guarantee(100.0),
        "mechanism": dp.MWEM(),
        "domain_release": found,
        **changed,
    }
    return dp.ReleaseSyntheticDatabase(**given)


def paid(plan: Any, dataset_id: str = "people", mechanism: str | None = None) -> Token:
    """The token of a plan, or of one of another mechanism."""
    return Token(dataset_id, 1, mechanism or plan.mechanism, plan.promised, plan.loss)


def token() -> Token:
    plan = dp.plan_domain(open_domains.open_domain(), open_domains.guarantee(100.0))
    return Token("people", 1, "mwem", open_domains.guarantee(100.0), plan.loss)


def discovered(**changed: Any) -> Any:
    """A release in memory of a table whose domain is open."""
    domain = open_domains.open_domain()
    given = {
        "workload": dp.marginals(domain, ways=2),
        "guarantee": open_domains.guarantee(),
        **changed,
    }
    return dp.release(open_domains.residents(90), domain, **given)


def sketch_flags(folder: pathlib.Path) -> dict[str, str | None]:
    (folder / "queries.jsonl").write_text('{"sparse": {"a": 1}}\n', encoding="utf-8")
    return {
        "input": write_table(folder, pa.table({"email": ["a", "b"]})),
        "queries": str(folder / "queries.jsonl"),
        "mechanism": "sparse_mw",
        "key": "email",
        "max_sparsity": "3",
        "epsilon": "1000",
        "delta": "1e-9",
        "neighboring": "add_or_remove_one",
        "privacy_unit": "record",
        "num_records": "noisy",
        "output": str(folder / "out"),
    }


# Its edges come from a release that a ledger paid for.
EDGES = dp.Domain(
    (
        dp.NumericAttribute(
            "age", (0, 5, 9), edges_from=PaidRelease("visits/1", "0123456789abcdef" * 2)
        ),
    )
)
# Hashes and summaries.

KEY = HashKey(4, np.arange(10, dtype=np.uint64), bytes(16))
GOOD = KEY.to_bytes()


def elements(values: Any) -> Any:
    return universe_elements(values, KEY, "support")


def added(sums: Any = None, keys: Any = None, weights: Any = None, *, signs: Any = None) -> Any:
    """Adds keys to a projection, whose sums no refused call changes."""
    made = DenseSigns(KEY, 64) if signs is None else signs
    sums = np.zeros(made.projection_width, np.int64) if sums is None else sums
    keys = np.arange(3, dtype=np.uint64) if keys is None else keys
    weights = np.ones(3, np.int64) if weights is None else weights
    try:
        return made.add(sums, keys, weights)
    finally:
        assert not sums.any()


def frozen(array: Any) -> Any:
    array.flags.writeable = False
    return array


def tables(domain: dp.Domain, *names: tuple[str, ...]) -> Marginals:
    shapes = {each: [domain.shape[axis] for axis in domain.axes(each)] for each in names}
    return Marginals(domain, {each: np.zeros(shape, np.int64) for each, shape in shapes.items()})


EVERYTHING: dict[str, Any] = dict(globals())
PLACES = (
    "windows of streams", "files of records", "arrivals", "declared records", "tables in memory",
    "open domains", "transforms", "hashes", "exact tables",
)  # fmt: skip
SURFACES: dict[str, Surface] = {
    **dict.fromkeys(PLACES, EVERYTHING),
    "answer-queries, of keys": Program(
        answer_queries.main, sketch_flags, words_of("answer_queries")
    ),
}
