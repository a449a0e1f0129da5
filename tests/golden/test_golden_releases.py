"""Releases as earlier versions wrote them: what people have on disk must stay readable."""

import pathlib

import numpy as np
import pytest

from beam_dp.queries import marginals
from beam_dp.releases import read_release

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
    assert release.parameters == {"calibration": "tight", "num_rounds": 3}
