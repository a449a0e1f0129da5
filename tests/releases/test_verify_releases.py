"""Verification of genuine releases of every kind, and of changed cards."""

import pathlib

import numpy as np
import pytest
from kinds_of_releases import (
    COUNTS,
    DOMAIN as CELLS,
    NOISE,
    RELEASES,
    guarantee,
    linear_answers,
    private_mw,
    released,
    selected,
    sparse_mw,
)
from noise_sources import Seeded

import beam_dp as dp
from beam_dp.mechanisms.registry import ReleaseOptions, plan_release
from beam_dp.releases.kinds import read_any, release_from_bytes, release_to_bytes
from beam_dp.releases.release import Release
from beam_dp.secret.summaries.histogram import Histogram

ADDED = "add_or_remove_one"
GOLDEN = pathlib.Path(__file__).parent.parent / "golden"


def again(release: Release) -> Release:
    """The release as read from its files."""
    return release_from_bytes(release_to_bytes(release))


# The least that honest cards keep of their promise, where it is not all of it: losses of two laws
# of noise do not add up exactly, and textbook calibrations draw more noise than they must.
LEAST = {
    "sparse_project textbook": 0.21,
    "private_mw textbook delta": 0.27,
    # The part of the later release is on its own card.
    "domain": 0.37,
    "domain pure": 0.09,
    "types": 0.2,
    "domain of types": 0.53,
    "of types": 1 - 1e-7,
    "counted units": 0.019,
    "of both": 0.99,
    "of a domain": 1 - 1e-7,
    "gaussian textbook": 0.95,
    **dict.fromkeys(("intervals left out", "private_mw", "sparse_mw"), 0.99),
}


@pytest.mark.parametrize("name", RELEASES)
def test_genuine_release_keeps_its_promise_and_wastes_nothing(name):
    found = dp.verify_release(again(released(name)))
    assert found.faults == () and found.holds and found.num_figures >= 2
    least = LEAST.get(name.partition(", ")[0], 1 - 1e-11)
    assert least <= found.epsilon <= 1.0


@pytest.mark.parametrize(
    ("make", "epsilon"), [(private_mw, 1e3), (sparse_mw, 1e3), (selected, 2e4)]
)
def test_release_whose_steps_have_large_epsilons_passes_verification(make, epsilon):
    """It was planned with a rho of epsilon^2 / 2, or the mu of a range, and needs less."""
    assert dp.verify_release(again(make(guarantee(epsilon=epsilon)))).faults == ()


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(each, marks=pytest.mark.part) for each in range(1, 8))]
)
def test_release_whose_noise_is_smaller_than_rounding_errors_passes_verification(seed):
    """Half of the pairs have no record."""
    domain = dp.parse_domain({"a": 2, "b": 3})
    promise = dp.Guarantee(60.0, 1e-9, "add_or_remove_one", "record", 1)
    plan = plan_release(dp.MWEM(), domain, dp.marginals(domain, ways=2), promise)
    counts = Histogram(domain, np.array([700 + seed, 0, 0, 0, 800 - seed, 0], np.int64))
    release = plan.release(counts.marginals(plan.summary_tables), Seeded(seed))
    assert dp.verify_release(release).faults == ()


@pytest.mark.parametrize("name", sorted(path.parent.name for path in GOLDEN.glob("*/*.json")))
def test_golden_releases_pass_verification(name):
    found = dp.verify_release(read_any(GOLDEN / name))
    epsilon = {"domain": 0.598880849296775}.get(name, 1.0)  # the rest is the later release's
    assert found.holds and found.epsilon == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("times", [10**3, pytest.param(10**5, marks=pytest.mark.part)])
@pytest.mark.parametrize("mechanism", [dp.MWEM(), dp.Gaussian(), dp.Laplace()], ids=repr)
@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_cell_bounds_have_relative_error_1e_9_up_to_ten_million_records(
    mechanism, relation, times, monkeypatch
):
    """Without the allowance for rounding counts, which only more records need."""
    monkeypatch.setattr("beam_dp.releases.synthetic_database.verify._ROUNDING", 0.0)
    promise, counts = guarantee(relation=relation), times * COUNTS
    number = "noisy" if relation == ADDED else int(counts.sum())
    workload = dp.marginals(CELLS, ways=2)
    plan = plan_release(mechanism, CELLS, workload, promise, ReleaseOptions(num_records=number))
    marginals = Histogram(CELLS, counts).marginals(plan.summary_tables)
    release = again(plan.release(marginals, NOISE))
    assert release.represented > 90 * times  # type: ignore[union-attr]
    found = dp.verify_release(release)
    assert found.holds and found.num_figures >= 20


def test_verification_notes_truncated_queries():
    release = linear_answers(guarantee(0.0))
    cut = '{"values": [' + "0.1, " * 1000
    rows = [{**row, "query": cut[:2000]} for row in release.rows]
    object.__setattr__(release, "rows", rows)
    found = dp.verify_release(release)
    assert found.holds and "were compared only with" in found.notes[0]
    object.__setattr__(release, "rows", [{**rows[0], "query": cut[:1999]}])
    with pytest.raises(dp.InputError, match="must be a query of the domain"):
        dp.verify_release(release)
