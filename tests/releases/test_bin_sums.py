"""Means that follow from noisy sums of places within bins."""

import dataclasses
import functools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from noise_sources import Seeded

import beam_dp as dp
from beam_dp import in_memory
from beam_dp.mechanisms.registry import ReleaseOptions, plan_release
from beam_dp.releases.kinds import release_from_bytes, release_to_bytes
from beam_dp.releases.synthetic_database.bin_sums import BinMeans

ROWS = 20_000
EDGES = (0, 100, 1000, 5000, 50_000)


@functools.cache
def table() -> pa.Table:
    rng = np.random.default_rng(3)
    group, kind = rng.integers(0, 5, ROWS), rng.integers(0, 3, ROWS)
    pay = np.minimum(np.exp(rng.normal(5 + 0.3 * group, 1)), EDGES[-1])
    age = np.minimum(17 + rng.geometric(0.05, ROWS), 90)
    return pa.table({"pay": pay, "age": age, "group": group, "kind": kind})


@functools.cache
def released(seed: int, with_sums: bool = True, **named: Any) -> dp.SyntheticDatabase:
    ages = dp.NumericAttribute("age", (17, 30, 32, 91), whole=True)
    columns = [dp.IntegerAttribute("group", 0, 4), dp.IntegerAttribute("kind", 0, 2)]
    domain = dp.Domain((dp.NumericAttribute("pay", EDGES, clip=True), ages, *columns))
    promise = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(in_memory, "NoiseSource", lambda: Seeded(seed))
        options = {"mechanism": dp.Gaussian(), "bin_sums": with_sums, **named}
        release = dp.release(table(), domain, None, promise, **options)
    return release_from_bytes(release_to_bytes(release))  # type: ignore[return-value]


def truth(name: str, groups: list[str]) -> list[float]:
    frame = table().to_pandas()
    return [frame[name].mean()] if not groups else frame.groupby(groups)[name].mean().tolist()


@pytest.mark.parametrize("name", ["pay", "age"])
def test_means_of_all_and_of_groups_are_within_their_bars(name):
    inside = []
    for seed in range(3):
        for groups in ([], ["group"], ["kind"], ["group", "kind"]):
            asked = released(seed).query()
            answers = (asked.group_by(*groups) if groups else asked).mean(name)
            pairs = zip(answers.rows(), truth(name, groups), strict=True)
            inside += [abs(row[f"mean_{name}"] - exact) <= row["margin"] for row, exact in pairs]
    assert np.mean(inside) >= 0.93 and len(inside) == 72


@pytest.mark.parametrize("name", ["pay", "age"])
def test_answers_and_released_records_have_the_means_of_the_data(name):
    exact = truth(name, [])[0]
    release, before = released(1), released(1, with_sums=False)
    (row,), (old,) = (one.query().mean(name).rows() for one in (release, before))
    away = [abs(one[f"mean_{name}"] - exact) for one in (row, old)]
    assert 10 * away[0] < away[1] and row["margin"] < old["margin"] / 3
    records = release.to_pandas()
    assert abs(records[name].mean() - row[f"mean_{name}"]) < 0.02 * exact
    means = release.bin_means[name]
    edges = np.array(release.domain[name].edges)
    bins = np.searchsorted(edges[1:-1], records[name], "right")
    for number in range(len(means.centers)):
        mean = records[name][bins == number].mean()
        assert abs(mean - means.centers[number]) < 0.03 * means.widths[number] + 0.02


@pytest.mark.parametrize("rule", ["uniform", "midpoint"])
def test_uniform_values_and_midpoints_do_not_follow_the_means(rule):
    rows = released(1, within_bins=rule).to_pandas()["pay"]
    assert abs(rows[rows < EDGES[1]].mean() - EDGES[1] / 2) < 2


def test_bounds_are_proved_from_the_middles_whose_weights_no_noise_has_chosen():
    release = released(1)
    middles = dataclasses.replace(release, bin_sums=None).query().group_by("kind").sum("pay").rows()
    for row, usual in zip(release.query().group_by("kind").sum("pay").rows(), middles, strict=True):
        assert row["bound"] == usual["bound"] + abs(row["sum_pay"] - usual["sum_pay"])


def test_limit_of_costs_measures_no_sums_and_keeps_its_plan():
    domain = dp.Domain((dp.NumericAttribute("pay", EDGES),))
    asked = dp.MWEM(max_unit_cost=2.0), domain, dp.marginals(domain, ways=1)
    promise = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "person", 9)
    usual, without = (
        plan_release(*asked, promise, ReleaseOptions(bin_sums=sums)) for sums in (None, False)
    )
    assert usual.bin_sums is None and usual.card() == without.card()


def test_margins_bound_what_any_records_of_a_bin_can_have():
    """All ways to choose some of ten places whose mean is known."""
    rng, zero = np.random.default_rng(1), np.zeros(1)
    for places in (rng.random(10), rng.random(10) ** 4, np.array([0.0] * 9 + [1.0])):
        mean = np.array([places.mean()])
        means = BinMeans(mean, mean, mean, np.ones(1), np.ones(1), zero)
        for number in range(11):
            bins, sums = means.margins(np.array([[float(number)]]), np.array([10.0]))
            chosen = np.sort(places)
            ends = chosen[:number].sum(), chosen[10 - number :].sum()
            assert max(abs(end - number * mean[0]) for end in ends) <= sums[0] + 1e-9
            assert bins[0, 0] == pytest.approx(sums[0])
        assert means.margins(np.array([[10.0]]), np.array([10.0]))[1][0] == pytest.approx(0)


def test_bin_that_makes_most_of_an_error_is_named():
    (row,) = released(1).query().mean("pay").rows()
    assert row["widest_bin"] == "[5000, 50000]"


def test_noise_far_above_the_records_keeps_the_usual_spread():
    release = released(2)
    sums = release.bin_sums
    assert sums is not None
    noisy = sums._replace(deviation=1e9)
    counts = {name: np.full(9, 100.0) for name in release.domain.names}
    usual = {"pay": np.full(4, 0.3), "age": np.full(3, 0.4)}
    shrunk = noisy.means(release.domain, counts, usual)
    for name, places in usual.items():
        assert shrunk[name].places == pytest.approx(places, abs=1e-6)
