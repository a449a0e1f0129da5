"""Releases as rows of a pipeline: of a release that is there, or of the same job."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.typehints.schemas import typing_to_runner_api
from barriers import remove_barriers
from fakes import COLLECTED, DOMAIN, WORKLOAD, NoPrivacy, collect, guarantee, outputs, pipeline
from noise_sources import watch_draws

import beam_dp as dp
from beam_dp.queries.lines import read_line
from beam_dp.releases.error_bars import FROM_NOISE
from beam_dp.releases.kinds import read_release, write_release
from beam_dp.releases.windows.horizon_files import window_directory

PEOPLE = [
    {"age": i % 10, "sex": "fm"[i % 2], "smokes": [True, False, None][i % 3]} for i in range(90)
]
DATED = dp.Domain(
    (
        dp.DateAttribute("visit", ("2020-01-01", "2020-02-01"), nullable=True),
        dp.DatetimeAttribute("at", ("2020-01-01T00:00Z", "2020-01-02T00:00Z")),
        dp.NumericAttribute("in/out of bed", (0, 1), other=True),
    )
)


def schema_of(rows: Any) -> dict[str, Any]:
    """The types of fields; sinks such as Parquet and BigQuery take no other types."""
    fields = typing_to_runner_api(rows.element_type).row_type.schema.fields
    assert {field.type.WhichOneof("type_info") for field in fields} == {"atomic_type"}
    return {field.name: field.type for field in fields}


def in_order(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=repr)


PAIR = dp.marginals(DOMAIN, ways=2)
HORIZON = dp.Horizon(100, 10, 3, 0)
WINDOWS = dp.plan_window_tables(PAIR, HORIZON, dp.WindowUnit("record", 1, 1, 1), 1e4, 0.0)
READER = dp.LinearQueries(DOMAIN)
LINES = ['{"id": "women", "conjunction": {"sex": "f"}}', '{"conjunction": {"sex": "unknown"}}']
QUERIES = [read_line(READER, line) for line in LINES]
ANSWERS = dp.plan_workload_answers(
    dp.LinearWorkload(DOMAIN, [QUERIES[0].query]), guarantee(), "noisy"
)


KINDS = ("synthetic", "marginals", "intervals", "answers", "windows")


def released_rows(kind: str, records: Any, out: Path) -> Any:
    """The rows of a release of this kind, in the same job."""
    if kind == "synthetic":
        exact: Any = dp.ReleaseSyntheticDatabase(DOMAIN, WORKLOAD, guarantee(), NoPrivacy())  # type: ignore[arg-type]
        return records | exact | dp.WriteRelease(out) | dp.SyntheticRows(domain=DOMAIN)
    if kind == "marginals":
        release = dp.ReleaseSyntheticDatabase(DOMAIN, PAIR, guarantee(), dp.Gaussian())
        rows = dp.MarginalRows(attributes=["smokes", "sex"], domain=DOMAIN)
        return records | release | dp.WriteRelease(out) | rows
    if kind == "intervals":
        release = dp.ReleaseIntervals(DOMAIN, "age", guarantee())
        rows = dp.IntervalRows(domain=DOMAIN, attribute="age", intervals=[(0, 9), (2, 5)])
        return records | release | dp.WriteRelease(out) | rows
    if kind == "answers":
        answers = records | dp.AnswerWorkload(ANSWERS, QUERIES)
        return answers | dp.WriteAnswers(out, ANSWERS) | dp.AnswerRows()
    times = {"event_time": "t", "arrival": "t"}
    horizon_id = dp.begin_windows(WINDOWS, out, **times, replayable=True)
    timed = records | beam.Map(lambda row: row | {"t": 100 + row["age"]})
    released = timed | dp.ReleaseWindows(WINDOWS, out, horizon_id, *times.values())
    return released | dp.WindowRows(out, attributes=["sex"])


def rows_of_kinds(folder: Path, bundle_repeat: int = 0) -> dict[str, list[Any]]:
    """The rows of each kind of release, and of releases that were there, of one pipeline."""

    def branch(kind: str) -> Any:
        def rows(p: Any) -> Any:
            found = released_rows(kind, p | beam.Create(PEOPLE), folder / kind)
            nullable = {name: each.nullable for name, each in schema_of(found).items()}
            if kind == "synthetic":
                assert nullable == {"age": False, "sex": False, "smokes": True}
            else:
                assert nullable["bound"]
            if kind == "marginals":
                assert [*nullable][:3] == ["sex", "smokes", "value"]
            return found

        return rows

    return outputs({kind: branch(kind) for kind in KINDS}, bundle_repeat)


@pytest.fixture(scope="module")
def released(tmp_path_factory) -> tuple[Path, dict[str, list[Any]]]:
    folder = tmp_path_factory.mktemp("rows")
    return folder, rows_of_kinds(folder)


def draw_ids(kind: str, out: Path) -> set[str]:
    """The draws that were committed."""
    places = [window_directory(out, number) for number in range(3)] if kind == "windows" else [out]
    return {read_release(place).draw_id for place in places}


@pytest.mark.job
def test_repeated_draws_reach_the_sink_as_one_draw(tmp_path, monkeypatch):
    """Nothing keeps a draw: each time that a step is done again, it draws again."""
    remove_barriers(monkeypatch)
    draws = watch_draws(monkeypatch, [])
    found = rows_of_kinds(tmp_path, bundle_repeat=2)
    # Of windows only the committed draw is found again.
    assert len(set(draws)) >= 3 * (len(KINDS) - 1)
    for kind in KINDS[1:]:
        assert {row.draw_id for row in found[kind]} == draw_ids(kind, tmp_path / kind), kind


@pytest.mark.job
def test_sink_before_the_commit_would_see_several_draws(tmp_path, monkeypatch):
    """The test above is not blind."""
    remove_barriers(monkeypatch)
    with pipeline(bundle_repeat=2) as p:
        release = dp.ReleaseIntervals(DOMAIN, "age", guarantee())
        _ = p | beam.Create(PEOPLE) | release | collect("shards")
    assert len({draw_id for draw_id, _ in COLLECTED["shards"]}) == 3


@pytest.mark.job
def test_synthetic_rows_are_those_of_the_release(released):
    found = [row._asdict() for row in released[1]["synthetic"]]
    assert in_order(found) == in_order(PEOPLE)


@pytest.mark.job
def test_marginal_rows_agree_with_the_release(released):
    folder, rows = released
    release = read_release(folder / "marginals", kind=dp.SyntheticDatabase)
    table = release.query().group_by("sex", "smokes").count().rows()
    names = {"value": "count"} | {name: name for name in ("sex", "smokes", "bound", "error")}
    expected = [{name: row[other] for name, other in names.items()} for row in table]
    found = [row._asdict() for row in rows["marginals"]]
    assert {row["error"] for row in found} == {FROM_NOISE}
    assert in_order([{name: row[name] for name in names} for row in found]) == in_order(expected)


@pytest.mark.job
def test_answer_rows_include_refused_queries(released):
    women, refused = sorted(released[1]["answers"], key=lambda row: row.value is None)
    assert (women.id, women.error, women.reason) == ("women", FROM_NOISE, None)
    assert women.bound > women.standard_error > 0
    assert (refused.id, refused.value, refused.error) == (None, None, None)
    assert "unknown" in refused.reason


def exact_dates(folder: Path) -> None:
    """Writes a release without noise of dates, times and numbers."""
    table = [{"visit": "2020-01-15", "at": "2020-01-01T08:00Z", "in/out of bed": "2"}] * 3
    table += [{"visit": None, "at": "2020-01-01T08:00Z", "in/out of bed": "0.5"}] * 2
    mechanism: Any = NoPrivacy()
    release = dp.release(
        pa.Table.from_pylist(table),
        DATED,
        dp.marginals(DATED, ways=1),
        guarantee(),
        mechanism=mechanism,
        within_bins="midpoint",
    )
    write_release(release, folder)


@pytest.mark.job
def test_rows_of_an_existing_release_have_times_and_ends_of_the_attribute(released, tmp_path):
    exact_dates(tmp_path / "dated")
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
    found = outputs({name: lambda p, rows=rows: p | rows for name, rows in reads.items()})
    noon = "2020-01-01T12:00:00+00:00"
    assert in_order([tuple(row._asdict().values()) for row in found["dated"]]) == in_order(
        [("2020-01-16", noon, "other")] * 3 + [(None, noon, "0.5")] * 2
    )
    ends = [(0.0, 10.0), (10.0, 20.5), (20.5, 30.0)]
    assert sorted((row.low, row.high) for row in found["bins"]) == ends
    ((low, high, value, *_),) = found["one"]
    assert (low, high) == (10.0, 30.0)
    assert value == read_release(tmp_path / "fares", kind=dp.IntervalRelease).answer(1, 2).values
    # Rows of windows skip blocks.
    rows = sorted(found["windows"], key=lambda row: (row.window, row.sex))
    assert [(row.window, row.sex) for row in rows] == [(w, s) for w in range(3) for s in "fm"]
    assert (rows[2].start, rows[2].end) == (
        "1970-01-01T00:01:50+00:00",
        "1970-01-01T00:02:00+00:00",
    )
    np.testing.assert_allclose([row.value for row in rows], [45, 45, 0, 0, 0, 0], atol=0.2)
    assert {row.error for row in rows} == {FROM_NOISE}


@pytest.mark.job
def test_refuses_to_show_rows_of_another_kind_or_of_nothing(released, tmp_path):
    with pytest.raises(dp.ReleaseError, match="must contain a SyntheticDatabase; this is an Int"):
        dp.SyntheticRows(released[0] / "intervals")
    for rows in (dp.SyntheticRows, dp.AnswerRows, partial(dp.WindowRows, attributes=["age"])):
        with pytest.raises(dp.ReleaseError, match=r"directory|card\.json"):
            rows(tmp_path)


def test_attributes_with_names_of_other_fields_get_an_underscore():
    domain = dp.Domain(tuple(dp.BooleanAttribute(name) for name in ("value", "value_", "class")))
    fields = dp.MarginalRows(attributes=domain.names, domain=domain).fields
    assert [*fields][:3] == ["value__", "value_", "class_"]
    assert [*fields][3:5] == ["value", "standard_error"]
