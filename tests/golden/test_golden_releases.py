"""Releases as earlier versions wrote them: what people have on disk must stay readable."""

import dataclasses
import pathlib

import numpy as np
import pytest

from beam_dp.hashing.elements import universe_elements
from beam_dp.queries.sparse import SparseQuery
from beam_dp.queries.workload import marginals
from beam_dp.releases.intervals.release import IntervalRelease
from beam_dp.releases.kinds import read_release, write_release
from beam_dp.releases.sketches.release import SparseRelease
from beam_dp.releases.windows.horizon_files import read_windows
from beam_dp.releases.windows.release import WindowTables

GOLDEN = pathlib.Path(__file__).parent


@pytest.fixture
def release():
    return read_release(GOLDEN / "synthetic_database_1")


def test_a_synthetic_database_of_schema_1_answers_as_it_did(release):
    member, both = release.answer(
        marginals(release.domain, attributes=[["member"], ["age", "member"]])
    )
    np.testing.assert_allclose(member.values, [54.514227, 5.485773], atol=1e-6)
    assert member.standard_error is None
    expected = [[11.52179, 1.17995], [4.818627, 3.456374], [38.17381, 0.849449]]
    np.testing.assert_allclose(both.values, expected, atol=1e-6)
    assert (both.standard_error, both.bound, both.failure_probability) == (2.5, 11.0, 0.05)


def test_a_synthetic_database_of_schema_1_holds_the_records_that_it_did(release):
    expected = [[10, 11], [13, 8], [8, 10]]
    assert release.record_marginal(("age", "member")).tolist() == expected
    assert release.domain.names == ("getting in/out of bed", "hours", "age", "member")
    assert release.guarantee.to_json() == {
        "epsilon": 1.0,
        "delta": 1e-9,
        "neighboring": "add_or_remove_one",
        "privacy_unit": "person_id",
        "max_records_per_unit": 2,
    }
    assert not release.num_records_is_public and release.num_records == 60
    assert release.plan == {"calibration": "tight", "num_rounds": 3}


# Value, standard error and bound of one query.
SPARSE = {
    "sparse_project": (441.750000, 130.336736, 582.883604),
    "count_sketch": (539.500000, 79.985000, 357.703795),
    "stability_histogram": (539.000000, 9.475862, 201.010353),
    "hybrid_sketch": (590.842102, 66.326248, 481.964397),
}


@pytest.mark.parametrize("mechanism", SPARSE)
def test_a_sparse_release_of_schema_1_answers_as_it_did(mechanism):
    release = read_release(GOLDEN / f"{mechanism}_1")
    assert isinstance(release, SparseRelease) and release.mechanism == mechanism
    answer = release.answer_query(SparseQuery({"key 4": 1.0, "key 3": 0.5, "nobody": 1.0}))
    found = (answer.value, answer.standard_error, answer.bound)
    np.testing.assert_allclose(found, SPARSE[mechanism], atol=1e-6)
    assert (release.max_sparsity, release.max_weight) == (8, 3)
    assert release.plan["key"] == {"key": "email", "key_type": "text", "weight": "visits"}
    assert release.guarantee.delta == 1e-9 and release.guarantee.max_records_per_unit == 2


@pytest.mark.parametrize("mechanism", SPARSE)
def test_keys_of_a_card_without_their_rule_are_texts_as_they_were_written(mechanism):
    release = read_release(GOLDEN / f"{mechanism}_1")
    written, plain = (
        release.answer(universe_elements([key], release.hash_key), np.ones(1))
        for key in ("7.0", "7")
    )
    assert release.answer_query(SparseQuery({"7.0": 1})) == written
    both = release.answer_query(SparseQuery({"7.0": 1, "7": 1}))
    assert both.value == pytest.approx(written.value + plain.value)
    key = {**release.plan["key"], "rule": 2}
    new = dataclasses.replace(release, plan={**release.plan, "key": key})
    assert new.answer_query(SparseQuery({"7.0": 1})) == plain


def test_intervals_of_schema_1_answer_as_they_did():
    release = read_release(GOLDEN / "intervals_1")
    assert isinstance(release, IntervalRelease)
    answers = release.answer([0, 3, 0], [4, 12, 22])
    np.testing.assert_allclose(answers.values, [3.89654, 37.005915, 215.096474], atol=1e-6)
    errors = [20.140794, 26.564427, 29.85293]
    np.testing.assert_allclose(answers.standard_errors, errors, atol=1e-6)
    np.testing.assert_allclose(answers.bounds, [54.706485, 72.154377, 81.086618], atol=1e-6)
    assert release.choice == ("weighted_tree", "discrete_gaussian")
    assert (release.attribute.name, release.num_leaves) == ("age", 23)


def test_intervals_of_a_strategy_that_is_no_longer_planned_answer_as_they_did(tmp_path):
    release = read_release(GOLDEN / "intervals_square_root_1")
    assert isinstance(release, IntervalRelease)
    assert release.choice == ("square_root", "discrete_gaussian")
    answers = release.answer([0, 3, 0], [4, 12, 22])
    np.testing.assert_allclose(answers.values, [30.658541, 107.402753, 203.02628], atol=1e-6)
    errors = [18.288225, 19.941762, 17.413206]
    np.testing.assert_allclose(answers.standard_errors, errors, atol=1e-6)
    np.testing.assert_allclose(answers.bounds, [49.674532, 54.165874, 47.297802], atol=1e-6)
    write_release(release, tmp_path / "again")
    again = read_release(tmp_path / "again").answer([0, 3, 0], [4, 12, 22])
    np.testing.assert_array_equal(again.standard_errors, answers.standard_errors)


def test_tables_of_a_window_of_schema_1_answer_as_they_did():
    release = read_release(GOLDEN / "window_tables_1")
    assert isinstance(release, WindowTables)
    both, bed, member = release.answer(
        marginals(
            release.domain,
            attributes=[["age", "member"], ["getting in/out of bed"], ["member"]],
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


def test_a_horizon_of_schema_1_answers_as_it_did():
    week = read_windows(GOLDEN / "horizon_1")
    assert (week.released, list(week.blocks), week.block) == ((0, 1, 2), [0], 2)
    assert (week.horizon_id, week.horizon.start, week.horizon.grace) == ("1" * 32, 1795392000, 1800)
    assert week.guarantee.privacy_unit == "person_id in any 4 consecutive windows of 1h"
    asked = marginals(week.domain, attributes=["a1"])
    for windows, values, errors in (
        (slice(0, 2), [28.156126, 41.138934, 36.896849], (5.655507, 32.317249)),
        (slice(1, 3), [70.078063, 69.069468, 70.948425], (5.655931, 32.319672)),
    ):
        (answer,) = week.answer(asked, windows)
        np.testing.assert_allclose(answer.values, values, atol=1e-6)
        assert (answer.standard_error, answer.bound) == pytest.approx(errors, abs=1e-6)
