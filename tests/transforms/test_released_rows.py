"""Releases as rows of a pipeline: of a release that is there, or of the same job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.typehints.schemas import typing_to_runner_api
from barriers import remove_barriers
from fakes import COLLECTED, DOMAIN, WORKLOAD, NoPrivacy, collect, guarantee, pipeline
from noise_sources import watch_draws

import beam_dp as dp
from beam_dp.errors import InputError
from beam_dp.queries.lines import read_line
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


@pytest.mark.job
def test_reads_rows_of_a_release_in_the_same_job(tmp_path):
    with pipeline() as p:
        release: Any = dp.ReleaseSyntheticDatabase(DOMAIN, WORKLOAD, guarantee(), NoPrivacy())  # type: ignore[arg-type]
        written = p | beam.Create(PEOPLE) | release | dp.WriteRelease(tmp_path / "out")
        rows = written | dp.SyntheticRows(domain=DOMAIN)
        schema = schema_of(rows)
        assert {name: kind.nullable for name, kind in schema.items()} == {
            "age": False, "sex": False, "smokes": True,
        }  # fmt: skip
        _ = rows | collect("rows")
    found = [row._asdict() for row in COLLECTED["rows"]]
    assert in_order(found) == in_order(PEOPLE)


@pytest.mark.job
def test_rows_of_an_existing_release_have_times_as_text(tmp_path):
    table = [{"visit": "2020-01-15", "at": "2020-01-01T08:00Z", "in/out of bed": "2"}] * 3
    table += [{"visit": None, "at": "2020-01-01T08:00Z", "in/out of bed": "0.5"}] * 2
    frame = pytest.importorskip("pandas").DataFrame(table)
    workload = dp.marginals(DATED, ways=1)
    release = dp.release(
        frame,
        DATED,
        workload,
        guarantee(),
        mechanism=NoPrivacy(),
        within_bins="midpoint",  # type: ignore[arg-type]
    )
    write_release(release, tmp_path / "out")
    with pipeline() as p:
        _ = p | dp.SyntheticRows(tmp_path / "out") | collect("dated")
    found = [tuple(row._asdict().values()) for row in COLLECTED["dated"]]
    noon = "2020-01-01T12:00:00+00:00"
    assert in_order(found) == in_order(
        [("2020-01-16", noon, "other")] * 3 + [(None, noon, "0.5")] * 2
    )


@pytest.mark.job
def test_refuses_unsuitable_release_or_arguments(tmp_path):
    domain = dp.Domain((dp.IntegerAttribute("age", 0, 9),))
    with pipeline() as p:
        release = dp.ReleaseIntervals(domain, "age", guarantee())
        _ = p | beam.Create(PEOPLE) | release | dp.WriteRelease(tmp_path / "intervals")
    with pytest.raises(dp.ReleaseError, match="must contain a SyntheticDatabase; this is an Int"):
        dp.SyntheticRows(tmp_path / "intervals")
    with pytest.raises(dp.ReleaseError, match="must be a directory with a release"):
        dp.SyntheticRows(tmp_path / "nothing")
    for arguments in ({}, {"directory": tmp_path / "out", "domain": DOMAIN}):
        with pytest.raises(InputError, match="or else the domain"):
            dp.SyntheticRows(**arguments)
    with pytest.raises(InputError, match="must be the output of WriteRelease"):
        _ = beam.Pipeline() | dp.SyntheticRows(domain=DOMAIN)


PAIR = dp.marginals(DOMAIN, ways=2)
HORIZON = dp.Horizon(100, 10, 3, 0)
WINDOWS = dp.plan_window_tables(PAIR, HORIZON, dp.WindowUnit("record", 1, 1, 1), 1e4, 0.0)
READER = dp.LinearQueries(DOMAIN)
LINES = ['{"id": "women", "conjunction": {"sex": "f"}}', '{"conjunction": {"sex": "unknown"}}']
QUERIES = [read_line(READER, line) for line in LINES]
ANSWERS = dp.plan_workload_answers(
    dp.LinearWorkload(DOMAIN, [QUERIES[0].query]), guarantee(), "noisy"
)


def released_rows(kind: str, records: Any, folder: Path) -> Any:
    """The rows of a release of this kind, in the same job."""
    out = folder / "out"
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


def draw_ids(kind: str, folder: Path) -> set[str]:
    """The draws that were committed."""
    out = folder / "out"
    places = [window_directory(out, number) for number in range(3)] if kind == "windows" else [out]
    return {read_release(place).draw_id for place in places}


@pytest.mark.job
@pytest.mark.parametrize("kind", ["marginals", "intervals", "answers", "windows"])
def test_repeated_draws_reach_the_sink_as_one_draw(tmp_path, monkeypatch, kind):
    """Nothing keeps a draw: each time that a step is done again, it draws again."""
    remove_barriers(monkeypatch)
    draws = watch_draws(monkeypatch, [])
    with pipeline(bundle_repeat=2) as p:
        rows = released_rows(kind, p | beam.Create(PEOPLE), tmp_path)
        assert schema_of(rows)["bound"].nullable
        _ = rows | collect("rows")
    if kind != "windows":  # they find the committed window, and do not draw again
        assert len(set(draws)) == 3
    found = {row.draw_id for row in COLLECTED["rows"]}
    assert found == draw_ids(kind, tmp_path)


@pytest.mark.job
def test_sink_before_the_commit_would_see_several_draws(tmp_path, monkeypatch):
    """The test above is not blind."""
    remove_barriers(monkeypatch)
    with pipeline(bundle_repeat=2) as p:
        release = dp.ReleaseIntervals(DOMAIN, "age", guarantee())
        _ = p | beam.Create(PEOPLE) | release | collect("shards")
    assert len({draw_id for draw_id, _ in COLLECTED["shards"]}) == 3


@pytest.mark.job
def test_marginal_rows_agree_with_the_release(tmp_path):
    with pipeline() as p:
        rows = released_rows("marginals", p | beam.Create(PEOPLE), tmp_path)
        assert [*schema_of(rows)][:3] == ["sex", "smokes", "value"]
        _ = rows | collect("rows")
    release = read_release(tmp_path / "out", kind=dp.SyntheticDatabase)
    table = release.query().group_by("sex", "smokes").count().rows()
    names = {"value": "count"} | {name: name for name in ("sex", "smokes", "bound", "error")}
    expected = [{name: row[other] for name, other in names.items()} for row in table]
    found = [row._asdict() for row in COLLECTED["rows"]]
    assert {row["error"] for row in found} == {"exact"}
    assert in_order([{name: row[name] for name in names} for row in found]) == in_order(expected)


@pytest.mark.job
def test_interval_rows_have_the_ends_of_the_attribute(tmp_path):
    domain = dp.Domain((dp.NumericAttribute("fare", (0, 10, 20.5, 30)), DATED.attributes[0]))
    frame = {"fare": [1.0, 11.0, 11.0], "visit": ["2020-01-15"] * 3}
    ends: dict[str, Any] = {"fare": [(0.0, 10.0), (10.0, 20.5), (20.5, 30.0)]}
    ends["visit"] = [("2020-01-01", "2020-02-01")]
    with pipeline() as p:
        rows = [dict(zip(frame, row, strict=True)) for row in zip(*frame.values(), strict=True)]
        release = dp.ReleaseIntervals(domain, "fare", guarantee())
        _ = p | beam.Create(rows) | release | dp.WriteRelease(tmp_path / "out")
    with pipeline() as p:
        _ = p | dp.IntervalRows(tmp_path / "out") | collect("bins")
        one = dp.IntervalRows(tmp_path / "out", intervals=[(10, 30)])
        _ = p | "One" >> one | collect("one")
    assert sorted((row.low, row.high) for row in COLLECTED["bins"]) == ends["fare"]
    ((low, high, value, *_),) = COLLECTED["one"]
    assert (low, high) == (10.0, 30.0)
    answer = read_release(tmp_path / "out", kind=dp.IntervalRelease).answer(1, 2)
    assert value == answer.values


@pytest.mark.job
def test_answer_rows_include_refused_queries(tmp_path):
    with pipeline() as p:
        _ = released_rows("answers", p | beam.Create(PEOPLE), tmp_path) | collect("rows")
    women, refused = sorted(COLLECTED["rows"], key=lambda row: row.value is None)
    assert (women.id, women.error, women.reason) == ("women", "exact", None)
    assert women.bound > women.standard_error > 0
    assert (refused.id, refused.value, refused.error) == (None, None, None)
    assert "unknown" in refused.reason


@pytest.mark.job
def test_window_rows_have_times_and_skip_blocks(tmp_path):
    with pipeline() as p:
        released_rows("windows", p | beam.Create(PEOPLE), tmp_path)
    with pipeline() as p:
        _ = p | dp.WindowRows(tmp_path / "out", attributes=["sex"]) | collect("rows")
    rows = sorted(COLLECTED["rows"], key=lambda row: (row.window, row.sex))
    assert [(row.window, row.sex) for row in rows] == [(w, s) for w in range(3) for s in "fm"]
    assert (rows[2].start, rows[2].end) == (
        "1970-01-01T00:01:50+00:00",
        "1970-01-01T00:02:00+00:00",
    )
    np.testing.assert_allclose([row.value for row in rows], [45, 45, 0, 0, 0, 0], atol=0.2)
    assert {row.error for row in rows} == {"exact"}


def test_attributes_with_names_of_other_fields_get_an_underscore():
    domain = dp.Domain(tuple(dp.BooleanAttribute(name) for name in ("value", "value_", "class")))
    fields = dp.MarginalRows(attributes=domain.names, domain=domain).fields
    assert [*fields][:3] == ["value__", "value_", "class_"]
    assert [*fields][3:5] == ["value", "standard_error"]
