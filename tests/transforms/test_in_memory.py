"""A release of a table in memory is the release of the program, and needs no Beam."""

from __future__ import annotations

import dataclasses
import decimal
import json
import operator
import subprocess
import sys
import traceback
import uuid
import warnings
from typing import Any

import apache_beam as beam
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fakes import DOMAIN, WORKLOAD, NoPrivacy, guarantee, outputs
from noise_sources import NoNoise
from source_imports import ROOT
from versions import since

import beam_dp as dp
import beam_dp.in_memory as release_table
from beam_dp.errors import InputError, PrivateStepError
from beam_dp.noise.source import NoiseSource
from beam_dp.transforms.drawing import one_worker

# Of some households more records than any limit here, some outside the domain, some of no one.
PEOPLE: list[dict[str, Any]] = [
    {
        "age": (i * i) % 11,
        "sex": "fmx"[i % 16 % 3],
        "smokes": [True, False, None][i % 3],
        "household": None if i % 41 == 40 else f"household {i % 60 // (1 + i % 4)}",
    }
    for i in range(400)
]
TABLE = pa.Table.from_pylist(PEOPLE)
BINNED = dp.Domain(
    (
        dp.NumericAttribute("age", (0, 3, 5, 9), other=True),
        dp.CategoricalAttribute("sex", ("f", "m")),
    )
)
EXACT: Any = NoPrivacy()
QUOTED = "canary-4711"  # by its name, for tracebacks show code


def rows_of(release: Any) -> list[Any]:
    """The records, whatever their order: each draw has its own."""
    rows = [row for batch in release.records() for row in zip(*batch.values(), strict=True)]
    return sorted(rows, key=repr)


@pytest.mark.parametrize("tables", [[("age", "sex")], [("age", "sex", "smokes")]])
@pytest.mark.parametrize("unit", ["record", "household"])
def test_counting_left_out_records_does_not_change_records_inside(unit, tables):
    # One small table is counted by itself, all cells as cells.
    promise = guarantee(unit, 1 if unit == "record" else 2)
    plan: Any = EXACT.plan(DOMAIN, WORKLOAD, promise, "noisy")
    plan = dataclasses.replace(plan, summary_tables=tuple(tables))
    summary, left_out = release_table._count(
        plan, release_table.Table(TABLE).batches(TABLE.column_names)
    )
    whole = dp.release(TABLE, DOMAIN, WORKLOAD, promise, mechanism=EXACT)
    assert left_out is None
    assert np.array_equal(summary.tables[tables[0]], whole.record_marginal(tables[0]))


@pytest.mark.job
def test_release_in_memory_writes_the_same_bytes_as_the_pipeline(tmp_path, monkeypatch):
    for module in (release_table, one_worker):
        monkeypatch.setattr(module, "NoiseSource", NoNoise)
    binned = (BINNED, dp.marginals(BINNED, ways=2))
    cases: dict[str, tuple[Any, Any]] = {
        "mwem": ((*binned, guarantee(), None), {"records_format": "parquet"}),
        "gaussian": ((*binned, guarantee("household", 2), dp.Gaussian()), {"count_left_out": True}),
        "laplace": (
            (*binned, guarantee("household", 3), dp.Laplace()),
            {"within_bins": "midpoint", "num_records": 300},
        ),
        "exact": ((DOMAIN, WORKLOAD, guarantee("household", 1), EXACT), {}),
    }
    outputs(
        {
            name: lambda p, name=name, given=given, options=options: (
                p
                | beam.Create(PEOPLE)
                | dp.ReleaseSyntheticDatabase(*given, **options)
                | dp.WriteRelease(tmp_path / "beam" / name)
            )
            for name, (given, options) in cases.items()
        }
    )
    for name, (given, options) in cases.items():
        *arguments, mechanism = given
        out = tmp_path / "here" / name
        dp.release(TABLE, *arguments, mechanism=mechanism, output=out, **options)
        one, other = (
            {path.name: path.read_bytes() for path in (tmp_path / place / name).iterdir()}
            for place in ("beam", "here")
        )
        assert one == other and "card.json" in one, name
    assert 0 < dp.read_release(tmp_path / "here" / "exact").num_records < len(PEOPLE)


class Stream:
    """What another library hands over: texts as views, several batches, once."""

    def __init__(self, table: pa.Table) -> None:
        schema = [
            field.with_type(pa.string_view()) if pa.types.is_string(field.type) else field
            for field in table.schema
        ]
        self.batches = table.cast(pa.schema(schema)).to_batches(max_chunksize=77)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        batches, self.batches = self.batches, []
        return pa.Table.from_batches(batches).__arrow_c_stream__(requested_schema)


def polars_frame(table: pa.Table) -> Any:
    return pytest.importorskip("polars").from_arrow(table)


@pytest.mark.parametrize(
    "make",
    [
        lambda table: table.to_pandas(),
        lambda table: pd.DataFrame(PEOPLE, dtype=object),
        lambda table: table.to_pandas().set_index("household"),
        lambda table: table.to_pandas().convert_dtypes(dtype_backend="pyarrow"),
        lambda table: table.combine_chunks().to_batches()[0],
        lambda table: table.to_reader(max_chunksize=50),
        pytest.param(Stream, marks=since("pyarrow", "25")),  # earlier ones crash at views
        polars_frame,
    ],
)
def test_tables_of_all_libraries_give_the_same_release(make):
    promise = guarantee("household", 2)
    expected, found = (
        dp.release(table, DOMAIN, WORKLOAD, promise, mechanism=EXACT)
        for table in (TABLE, make(TABLE))
    )
    assert rows_of(found) == rows_of(expected)


def test_incomparable_value_drops_only_its_own_record():
    frame = pd.DataFrame({"age": [1] * 999, "sex": "f", "smokes": True}, dtype=object)
    frame.at[7, "age"] = decimal.Decimal("sNaN")
    found = dp.release(frame, DOMAIN, WORKLOAD, guarantee(), mechanism=EXACT)
    assert found.num_records == 998


ADDRESSES = pa.array([number.to_bytes(8, "little") for number in range(400)], pa.binary(8))


def test_accepts_8_byte_units_cast_to_binary():
    table = TABLE.append_column("who", ADDRESSES.cast(pa.binary()))
    found = dp.release(table, DOMAIN, WORKLOAD, guarantee("who"), mechanism=EXACT)
    assert (
        found.num_records
        == dp.release(TABLE, DOMAIN, WORKLOAD, guarantee(), mechanism=EXACT).num_records
    )


@pytest.mark.parametrize("unit", ["age", "who"])
def test_refuses_polars_object_columns(unit):
    polars = pytest.importorskip("polars")
    ids = [uuid.UUID(int=7)] * 3
    columns = {"age": [1] * 3, "sex": ["f"] * 3, "smokes": [True] * 3, "who": ["a"] * 3}
    frame = polars.DataFrame(columns | {unit: polars.Series(ids, dtype=polars.Object)})
    with pytest.raises(InputError, match=rf"'{unit}' is not valid: .*Object.*text"):
        dp.release(frame, DOMAIN, WORKLOAD, guarantee("who"))
    with pytest.raises(InputError, match=r"table: 'LazyFrame' is not valid: must be .* collected"):
        dp.release(frame.lazy(), DOMAIN, WORKLOAD, guarantee("who"))


@pytest.mark.parametrize(
    "step", ["encode_records", "limit_records", "MarginalsAccumulator.add_batch", "draw_database"]
)
def test_withholds_errors_of_steps_on_records(step, monkeypatch):
    def fail(*_: Any) -> Any:
        raise InputError("age", QUOTED, "must be something else")

    owner, _, name = f"release_table.{step}".rpartition(".")
    monkeypatch.setattr(operator.attrgetter(owner)(sys.modules[__name__]), name, fail)
    with pytest.raises(PrivateStepError) as error:
        dp.release(TABLE, DOMAIN, WORKLOAD, guarantee("household"))
    assert QUOTED not in "".join(traceback.format_exception(error.value))
    assert "its message is withheld" in str(error.value)


def test_pays_before_drawing_noise_and_marks_release_complete(tmp_path, monkeypatch):
    ledger = dp.Ledger(f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    ledger.declare("people", 1.5, 1e-6, "record", "add_or_remove_one")
    states: list[str] = []

    class Watching(NoiseSource):
        def __init__(self) -> None:
            states.extend(entry.state for entry in ledger.entries("people"))

    monkeypatch.setattr(release_table, "NoiseSource", Watching)

    def paid(**named: Any) -> dp.SyntheticDatabase:
        return dp.release(TABLE, DOMAIN, WORKLOAD, guarantee(), ledger=ledger, **named)

    release = paid(dataset_id="people", output=tmp_path / "out", purpose="the report")
    assert states == ["submitted"]
    (entry,) = ledger.entries("people")
    assert (entry.state, entry.draw_id) == ("released", release.draw_id)
    assert release.plan["ledger_release"] == entry.release_id
    assert entry.parameters["workload"] == WORKLOAD.to_json()
    assert entry.origin is not None
    assert (entry.origin.purpose, entry.origin.output) == ("the report", str(tmp_path / "out"))
    assert rows_of(dp.read_release(tmp_path / "out")) == rows_of(release)
    for named, message in (({"dataset_id": "people"}, "epsilon"), ({}, "dataset_id")):
        with pytest.raises(InputError, match=message):
            paid(**named)
    with pytest.raises(InputError, match="output"):
        dp.release(TABLE, DOMAIN, WORKLOAD, guarantee(), output=tmp_path / "out")
    with pytest.raises(InputError, match="purpose: 'mine' is not valid"):
        dp.release(TABLE, DOMAIN, WORKLOAD, guarantee(), purpose="mine")
    assert states == ["submitted"] and len(ledger.entries("people")) == 1


@pytest.mark.job
def test_release_in_memory_does_not_import_beam(tmp_path):
    code = f"""
import sys
import beam_dp as dp, pyarrow as pa
domain = dp.read_domain({json.dumps(json.dumps(BINNED.to_json()))})
ledger = dp.Ledger("sqlite:///{tmp_path}/ledger.sqlite")
ledger.declare("people", 5, 1e-6, "record", "add_or_remove_one")
promise = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
table = pa.table({{"age": [1, 2, 3], "sex": ["f", "m", "f"]}})
dp.release(table, domain, dp.marginals(domain, ways=1), promise, ledger=ledger,
           dataset_id="people", output="{tmp_path}/out", count_left_out=True)
dp.read_release("{tmp_path}/out")
print(*sys.modules)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "beam_dp" in loaded and "apache_beam" not in loaded


def test_exception_keeps_a_release_that_could_not_be_written(tmp_path, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(release_table, "write_release", full)
    with pytest.raises(OSError, match="No space left") as caught:
        dp.release(TABLE, DOMAIN, WORKLOAD, guarantee(), output=tmp_path / "out")
    monkeypatch.undo()
    assert "dp.write_release(error.release, directory)" in caught.value.__notes__[0]
    kept = caught.value.release  # type: ignore[attr-defined]
    dp.write_release(kept, tmp_path / "elsewhere")
    assert dp.read_release(tmp_path / "elsewhere").draw_id == kept.draw_id


def test_release_works_where_the_caller_has_numpy_raise_errors():
    generator = np.random.default_rng(3)
    domain = dp.parse_domain('{"age": 6, "sex": 2, "education": 4}')
    # No record has the last level of education, so its share underflows.
    largest = {"age": 6, "sex": 2, "education": 3}
    table = pa.table({name: generator.integers(0, most, 5000) for name, most in largest.items()})
    promise = dp.Guarantee(100.0, 1e-9, "add_or_remove_one", "record", 1)
    with np.errstate(all="raise"), warnings.catch_warnings(action="ignore"):
        drawn = dp.release(table, domain, dp.marginals(domain, ways=2), promise)
        assert np.geterr()["under"] == "raise"
    assert drawn.num_records > 4000
