"""Releases that an earlier version wrote: they must stay readable, and answer as they did."""

import pathlib

import numpy as np
import pytest

import beam_dp as dp
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.windows.release import WindowTables

GOLDEN = pathlib.Path(__file__).parent


def test_reads_a_synthetic_database():
    release = dp.read_release(GOLDEN / "synthetic_database", kind=dp.SyntheticDatabase)
    member, both = release.answer(
        dp.marginals(release.domain, attributes=[["member"], ["age", "member"]])
    )
    np.testing.assert_allclose(member.values, [1253.414918, 1146.585082], atol=1e-6)
    assert member.standard_error == pytest.approx(13.745785, abs=1e-6)
    expected = [[433.946325, 358.906978], [413.789073, 390.302216], [405.679521, 397.375887]]
    np.testing.assert_allclose(both.values, expected, atol=1e-6)
    assert (both.standard_error, both.bound) == pytest.approx((7.953318, 53.857583), abs=1e-6)
    assert both.failure_probability == 0.05
    records = [[434, 359], [414, 390], [406, 397]]
    assert release.record_marginal(("age", "member")).tolist() == records
    assert release.domain.names == ("getting in/out of bed", "hours", "age", "member")
    assert release.guarantee.to_json() == {
        "epsilon": 1.0,
        "delta": 1e-9,
        "neighboring": "add_or_remove_one",
        "privacy_unit": "person_id",
        "max_records_per_unit": 2,
    }
    assert not release.num_records_is_public and release.num_records == 2400
    assert (release.mechanism, release.plan["strategy"]) == ("mwem", "measure_all")


# Value, standard error and bound of one query.
SPARSE = {
    "sparse_project": (441.750000, 130.336736, 582.883604),
    "count_sketch": (539.500000, 79.985000, 357.703795),
    "stability_histogram": (539.000000, 9.475862, 201.010353),
    "hybrid_sketch": (590.842102, 66.326248, 481.964397),
}


@pytest.mark.parametrize("mechanism", SPARSE)
def test_reads_a_release_for_sparse_queries(mechanism):
    release = dp.read_release(GOLDEN / mechanism, kind=dp.SparseRelease)
    assert release.mechanism == mechanism
    answer = release.answer_query(dp.SparseQuery({"key 4": 1.0, "key 3": 0.5, "nobody": 1.0}))
    found = (answer.value, answer.standard_error, answer.bound)
    np.testing.assert_allclose(found, SPARSE[mechanism], atol=1e-6)
    assert (release.max_sparsity, release.max_weight) == (8, 3)
    key = {"key": "email", "key_type": "text", "weight": "visits", "rule": 2}
    assert release.plan["key"] == key
    assert release.guarantee.delta == 1e-9 and release.guarantee.max_records_per_unit == 2


def test_reads_interval_counts():
    release = dp.read_release(GOLDEN / "intervals", kind=dp.IntervalRelease)
    answers = release.answer([0, 3, 0], [4, 12, 32])
    np.testing.assert_allclose(answers.values, [0, 75, 524], atol=1e-6)
    errors = [6.259152, 8.851777, 16.080052]
    np.testing.assert_allclose(answers.standard_errors, errors, atol=1e-6)
    np.testing.assert_allclose(answers.bounds, [28.596291, 40.441262, 73.465201], atol=1e-6)
    assert release.choice == ("tree", "discrete_laplace")
    assert (release.attribute.name, release.num_leaves) == ("cell", 33)


def test_reads_answers():
    release = dp.read_release(GOLDEN / "answers", kind=AnswersRelease)
    assert (release.mechanism, len(release.rows)) == ("laplace", 16)
    assert release.rows[0]["query"] == '{"codes": [[0, [[0, 1]]]]}'
    found = [release.rows[0][name] for name in ("value", "standard_error", "bound", "route")]
    assert found == [145.0, pytest.approx(22.623735, abs=1e-6), 92.0, "measured"]


def test_reads_tables_of_a_window():
    release = dp.read_release(GOLDEN / "window_tables", kind=WindowTables)
    both, bed, member = release.answer(
        dp.marginals(
            release.domain, attributes=[["age", "member"], ["getting in/out of bed"], ["member"]]
        )
    )
    expected = [[4571.525328, 4548.494548], [4591.087645, 4514.405349], [4575.012743, 4596.050144]]
    np.testing.assert_allclose(both.values, expected, atol=1e-6)
    assert (both.standard_error, both.bound) == pytest.approx((31.106330, 102.986281), abs=1e-6)
    assert bed.standard_error == pytest.approx(31.330762, abs=1e-6)
    np.testing.assert_allclose(member.values, both.values.sum(axis=0), atol=1e-6)
    assert (release.level, release.number, release.start) == ("window", 3, 1795402800)
    assert release.guarantee.privacy_unit == "person_id in any 5 consecutive windows of 1h"
    assert release.plan["worst_case"] == {"periods": 2, "epsilon": 2.0, "delta": 2e-9}


def test_reads_a_horizon():
    week = dp.read_windows(GOLDEN / "horizon")
    assert (week.released, list(week.blocks), week.block) == ((0, 1, 2), [0], 2)
    assert (week.horizon_id, week.horizon.start, week.horizon.grace) == ("1" * 32, 1795392000, 1800)
    assert week.guarantee.privacy_unit == "person_id in any 4 consecutive windows of 1h"
    asked = dp.marginals(week.domain, attributes=["a1"])
    for windows, values, errors in (
        (slice(0, 2), [28.156126, 41.138934, 36.896849], (5.655507, 32.317249)),
        (slice(1, 3), [70.078063, 69.069468, 70.948425], (5.655931, 32.319672)),
    ):
        (answer,) = week.answer(asked, windows)
        np.testing.assert_allclose(answer.values, values, atol=1e-6)
        assert (answer.standard_error, answer.bound) == pytest.approx(errors, abs=1e-6)


def test_reads_a_domain():
    release = dp.read_release(GOLDEN / "domain", kind=dp.DomainRelease)
    assert release.domain["city"].labels() == ("Atlantis", "Oslo", "Rome", "Bonn", "other")
    assert release.domain["income"].edges_to_json() == [235, 1426, 2148, 2656, 3814]
    assert release.domain["income"].edges_from.ledger_release == "visits/3"
    counts = release.found[0].counts
    np.testing.assert_allclose(counts, [498.160227, 495.404892, 493.884535], atol=1e-6)
    assert release.discovered.main.epsilon == pytest.approx(1.891725, abs=1e-6)
    assert dp.verify_release(release).holds
