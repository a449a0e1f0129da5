"""A release of a table in memory is that of the program, and needs no Beam; releases as rows."""

from __future__ import annotations

import operator
import sys
import traceback
import uuid
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import apache_beam as beam
import job_pages
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from apache_beam.typehints.schemas import typing_to_runner_api
from barriers import remove_barriers
from fakes import COLLECTED, DOMAIN, WORKLOAD, NoPrivacy, collect, guarantee, outputs, pipeline
from noise_sources import NoNoise, watch_draws
from versions import since

import beam_dp as dp
import beam_dp.in_memory as release_table
from beam_dp.errors import InputError, PrivateStepError
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.releases.error_bars import FROM_NOISE
from beam_dp.releases.windows.horizon_files import window_directory
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


@pytest.mark.parametrize("unit", ["age", "who"])
def test_refuses_polars_object_columns(unit):
    polars = pytest.importorskip("polars")
    ids = [uuid.UUID(int=7)] * 3
    columns = {"age": [1] * 3, "sex": ["f"] * 3, "smokes": [True] * 3, "who": ["a"] * 3}
    frame = polars.DataFrame(columns | {unit: polars.Series(ids, dtype=polars.Object)})
    with pytest.raises(InputError, match=rf"'{unit}' is not valid: .*text.*Object"):
        dp.release(frame, DOMAIN, WORKLOAD, guarantee("who"))
    with pytest.raises(InputError, match=r"table: 'LazyFrame' is not valid: must be .* collected"):
        dp.release(frame.lazy(), DOMAIN, WORKLOAD, guarantee("who"))


def test_reads_polars_frames_with_unread_columns_of_types_that_arrow_lacks():
    polars = pytest.importorskip("polars")
    frame = polars.from_arrow(TABLE).with_columns(hash=polars.lit(1, polars.Int128))
    found = dp.release(frame, DOMAIN, WORKLOAD, guarantee(), mechanism=EXACT)
    assert found.num_records > 0
    with pytest.raises(InputError, match=r"privacy_unit: 'hash' .* it is Int128"):
        dp.release(frame, DOMAIN, WORKLOAD, guarantee("hash"))


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

    paid = {"ledger": ledger, "dataset_id": "people", "purpose": "the report"}
    release = dp.release(TABLE, DOMAIN, WORKLOAD, guarantee(), output=tmp_path / "out", **paid)
    assert states == ["submitted"]
    (entry,) = ledger.entries("people")
    assert (entry.state, entry.draw_id) == ("released", release.draw_id)
    assert release.plan["ledger_release"] == entry.release_id
    assert entry.parameters["workload"] == WORKLOAD.to_json()
    assert entry.origin is not None
    assert (entry.origin.purpose, entry.origin.output) == ("the report", str(tmp_path / "out"))
    assert rows_of(dp.read_release(tmp_path / "out")) == rows_of(release)


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


DATED = dp.Domain(
    (
        dp.DateAttribute("visit", ("2020-01-01", "2020-02-01"), nullable=True),
        dp.DatetimeAttribute("at", ("2020-01-01T00:00Z", "2020-01-02T00:00Z")),
        dp.NumericAttribute("in/out of bed", (0, 1), other=True),
    )
)


def in_order(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=repr)


# Rows, and the kind of the release that they show.
KINDS: dict[str, tuple[str, Callable[[Path], beam.PTransform]]] = {
    "synthetic": ("synthetic database", lambda _: dp.SyntheticRows(domain=job_pages.DOMAIN)),
    "marginals": (
        "synthetic database",
        lambda _: dp.MarginalRows(attributes=["sex", "age"], domain=job_pages.DOMAIN),
    ),
    "intervals": (
        "intervals",
        lambda _: dp.IntervalRows(
            domain=job_pages.DOMAIN, attribute="age", intervals=[(0, 9), (2, 5)]
        ),
    ),
    "answers": ("answers", lambda _: dp.AnswerRows()),
    "windows": ("windows", lambda out: dp.WindowRows(out, attributes=["sex"])),
}


def nullable_fields(rows: Any) -> dict[str, bool]:
    """Of rows whose fields have types that sinks such as Parquet and BigQuery take."""
    fields = typing_to_runner_api(rows.element_type).row_type.schema.fields
    assert {field.type.WhichOneof("type_info") for field in fields} == {"atomic_type"}
    return {field.name: field.type.nullable for field in fields}


def rows_of_kinds(folder: Path, bundle_repeat: int = 0) -> dict[str, list[Any]]:
    """The rows of each kind of release, of one pipeline."""

    def branch(name: str) -> Any:
        kind, rows = KINDS[name]

        def steps(p: Any) -> Any:
            records = p | beam.Create(job_pages.PEOPLE)
            found = job_pages.released(kind, records, folder / name) | rows(folder / name)
            nullable = nullable_fields(found)
            assert nullable == {"age": False, "sex": False} or nullable["bound"]
            assert name != "marginals" or [*nullable][:3] == ["age", "sex", "value"]
            return found

        return steps

    return outputs({name: branch(name) for name in KINDS}, bundle_repeat)


def draw_ids(name: str, out: Path) -> set[str]:
    """The draws that were committed."""
    places = [window_directory(out, number) for number in range(2)] if name == "windows" else [out]
    return {dp.read_release(place).draw_id for place in places}


@pytest.fixture(scope="module")
def released(tmp_path_factory) -> tuple[Path, dict[str, list[Any]]]:
    folder = tmp_path_factory.mktemp("rows")
    return folder, rows_of_kinds(folder)


@pytest.mark.job
def test_repeated_draws_reach_the_sink_as_one_draw(tmp_path, monkeypatch):
    """Nothing keeps a draw: each time that a step is done again, it draws again."""
    remove_barriers(monkeypatch)
    draws = watch_draws(monkeypatch, [])
    found = rows_of_kinds(tmp_path, bundle_repeat=2)
    # Of windows only the committed draw is found again.
    assert len(set(draws)) >= 3 * (len(KINDS) - 1)
    for name in [*KINDS][1:]:
        assert {row.draw_id for row in found[name]} == draw_ids(name, tmp_path / name), name


@pytest.mark.job
def test_sink_before_the_commit_would_see_several_draws(tmp_path, monkeypatch):
    """The test above is not blind."""
    remove_barriers(monkeypatch)
    with pipeline(bundle_repeat=2) as p:
        release = dp.ReleaseIntervals(DOMAIN, "age", guarantee())
        _ = p | beam.Create([{"age": 3}]) | release | collect("shards")
    assert len({draw_id for draw_id, _ in COLLECTED["shards"]}) == 3


@pytest.mark.job
def test_rows_agree_with_their_releases(released):
    folder, rows = released
    found = [tuple(row._asdict().values()) for row in rows["synthetic"]]
    assert in_order(found) == rows_of(dp.read_release(folder / "synthetic"))
    release = dp.read_release(folder / "marginals", kind=dp.SyntheticDatabase)
    table = release.query().group_by("age", "sex").count().rows()
    names = {"value": "count"} | {name: name for name in ("age", "sex", "bound", "error")}
    expected = [{name: row[other] for name, other in names.items()} for row in table]
    found = [row._asdict() for row in rows["marginals"]]
    assert in_order([{name: row[name] for name in names} for row in found]) == in_order(expected)
    women, refused = sorted(rows["answers"], key=lambda row: row.value is None)
    assert (women.error, women.reason) == (FROM_NOISE, None)
    assert women.bound > women.standard_error > 0
    assert (refused.value, refused.error) == (None, None)
    assert "unknown" in refused.reason


@pytest.mark.job
def test_rows_of_an_existing_release_have_times_and_ends_of_the_attribute(released, tmp_path):
    table = [{"visit": "2020-01-15", "at": "2020-01-01T08:00Z", "in/out of bed": "2"}] * 3
    table += [{"visit": None, "at": "2020-01-01T08:00Z", "in/out of bed": "0.5"}] * 2
    given = DATED, dp.marginals(DATED, ways=1), guarantee()
    dp.release(
        pa.Table.from_pylist(table),
        *given,
        mechanism=EXACT,
        within_bins="midpoint",
        output=tmp_path / "dated",
    )
    domain = dp.Domain((dp.NumericAttribute("fare", (0, 10, 20.5, 30)), DATED.attributes[0]))
    frame = [{"fare": fare, "visit": "2020-01-15"} for fare in (1.0, 11.0, 11.0)]
    fares = dp.ReleaseIntervals(domain, "fare", guarantee())
    write = dp.WriteRelease(tmp_path / "fares")
    outputs({"fares": lambda p: p | beam.Create(frame) | fares | write})
    reads: dict[str, Any] = {
        "dated": dp.SyntheticRows(tmp_path / "dated"),
        "bins": dp.IntervalRows(tmp_path / "fares"),
        "one": dp.IntervalRows(tmp_path / "fares", intervals=[(10, 30)]),
        "windows": dp.WindowRows(released[0] / "windows", attributes=["sex"]),
    }
    assert nullable_fields(beam.Pipeline() | reads["dated"]) == {
        "visit": True,
        "at": False,
        "in_out_of_bed": False,
    }
    found = outputs({name: lambda p, rows=rows: p | rows for name, rows in reads.items()})
    noon = "2020-01-01T12:00:00+00:00"
    assert in_order([tuple(row._asdict().values()) for row in found["dated"]]) == in_order(
        [("2020-01-16", noon, "other")] * 3 + [(None, noon, "0.5")] * 2
    )
    ends = [(0.0, 10.0), (10.0, 20.5), (20.5, 30.0)]
    assert sorted((row.low, row.high) for row in found["bins"]) == ends
    ((low, high, value, *_),) = found["one"]
    assert (low, high) == (10.0, 30.0)
    assert value == dp.read_release(tmp_path / "fares", kind=dp.IntervalRelease).answer(1, 2).values
    # Rows of windows skip blocks.
    rows = sorted(found["windows"], key=lambda row: (row.window, row.sex))
    assert [(row.window, row.sex) for row in rows] == [(w, s) for w in range(2) for s in "fm"]
    assert (rows[2].start, rows[2].end) == (
        "1970-01-01T00:00:05+00:00",
        "1970-01-01T00:00:10+00:00",
    )
    windows, sexes = dp.read_windows(released[0] / "windows"), job_pages.PAIR.domain.names[1:]
    asked = dp.marginals(job_pages.DOMAIN, attributes=sexes)
    values = [windows.answer(asked, slice(n, n + 1))[0].values for n in range(2)]
    np.testing.assert_allclose([row.value for row in rows], np.concatenate(values))
    assert {row.error for row in rows} == {FROM_NOISE}


@pytest.mark.job
def test_refuses_to_show_rows_of_another_kind_or_of_nothing(released, tmp_path):
    with pytest.raises(dp.ReleaseError, match="must contain a SyntheticDatabase; this is an Int"):
        dp.SyntheticRows(released[0] / "intervals")
    for rows in (dp.SyntheticRows, dp.AnswerRows, partial(dp.WindowRows, attributes=["age"])):
        with pytest.raises(dp.ReleaseError, match=r"directory|card\.json"):
            rows(tmp_path)
