"""Released records as rows of a pipeline: of a release that is there, or of the same job."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.typehints.row_type import RowTypeConstraint
from fakes import COLLECTED, DOMAIN, WORKLOAD, NoPrivacy, collect, guarantee, pipeline

import beam_dp as dp
from beam_dp.errors import InputError
from beam_dp.releases.kinds import write_release

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


def in_order(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=repr)


def test_reads_rows_of_a_release_in_the_same_job(tmp_path):
    with pipeline() as p:
        release: Any = dp.ReleaseSyntheticDatabase(DOMAIN, WORKLOAD, guarantee(), NoPrivacy())  # type: ignore[arg-type]
        written = p | beam.Create(PEOPLE) | release | dp.WriteRelease(tmp_path / "out")
        rows = written | dp.SyntheticRows(domain=DOMAIN)
        assert isinstance(rows.element_type, RowTypeConstraint)
        assert dict(rows.element_type._fields) == {
            "age": int, "sex": str, "smokes": bool | None,
        }  # fmt: skip
        _ = rows | collect("rows")
    found = [row._asdict() for row in COLLECTED["rows"]]
    assert in_order(found) == in_order(PEOPLE)


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


def test_refuses_unsuitable_release_or_arguments(tmp_path):
    domain = dp.Domain((dp.IntegerAttribute("age", 0, 9),))
    with pipeline() as p:
        release = dp.ReleaseIntervals(domain, "age", guarantee())
        _ = p | beam.Create(PEOPLE) | release | dp.WriteRelease(tmp_path / "intervals")
    with pytest.raises(InputError, match="must contain a synthetic database"):
        dp.SyntheticRows(tmp_path / "intervals")
    with pytest.raises(dp.ReleaseError, match="must be a directory with a release"):
        dp.SyntheticRows(tmp_path / "nothing")
    for arguments in ({}, {"directory": tmp_path / "out", "domain": DOMAIN}):
        with pytest.raises(InputError, match="or else the domain"):
            dp.SyntheticRows(**arguments)
    with pytest.raises(InputError, match="must be the output of WriteRelease"):
        _ = beam.Pipeline() | dp.SyntheticRows(domain=DOMAIN)
