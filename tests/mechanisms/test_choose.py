"""Selections: known answers, exact laws on all neighbours, samplers against laws, and mutants.

Chi-square tests reject a true law with probability 1e-6 each, in the limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from noise_sources import NoNoise, Seeded
from tiny import ADD, REPLACE, promise

from beam_dp.errors import InputError
from beam_dp.mechanisms import choosing as choose
from beam_dp.noise.source import NoiseSource
from beam_dp.testing import audit

LAWS: dict[str, Callable[..., dict[int, float]]] = {
    "exponential_mechanism": audit.exponential_mechanism,
    "permute_and_flip": audit.permute_and_flip,
    "geometric_noisy_max": audit.geometric_noisy_max,
}
SCORES = np.array([10, 9, 5, 0])


def test_known_answers():
    scale = choose.selection_scale(1, 1.0)
    expected = {
        "exponential_mechanism": ([0.589847, 0.357761, 0.0484176, 0.00397436], 0.639592),
        "permute_and_flip": ([0.670382, 0.294314, 0.0326804, 0.00262362], 0.483953),
    }
    for name, (law, shortfall) in expected.items():
        found = np.array(list(LAWS[name](SCORES.tolist(), scale).values()))
        assert found.tolist() == pytest.approx(law, rel=1e-5)
        assert found @ (10 - SCORES) == pytest.approx(shortfall, rel=1e-5)


def test_permute_and_flip_is_continuous_exponential_noisy_max():
    """The sum over subsets of McKenna and Sheldon, as a second way to its law."""
    coins = np.exp((SCORES - 10) / 2)
    for index, found in audit.permute_and_flip(SCORES.tolist(), 2.0).items():
        rest = np.delete(coins, index)
        expected = 0.0
        for chosen in product([False, True], repeat=3):
            sign, share = (-1) ** sum(chosen), 1 / (1 + sum(chosen))
            expected += sign * share * np.prod(rest[list(chosen)])
        assert found == pytest.approx(coins[index] * expected, rel=1e-12)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("monotone", [False, True])
def test_every_shift_of_every_score_costs_at_most_epsilon(name: str, monotone: bool):
    """All differences of three integer scores within 6; the worst pair spends all of it."""
    scale = choose.selection_scale(1, 1.0, monotone)
    shifts = [(0, 1)] * 3 if monotone else [(-1, 0, 1)] * 3
    worst = 0.0
    laws = {u: LAWS[name](u, scale) for u in product(range(-8, 9), repeat=3) if max(u) <= 1}
    for scores in product(range(-6, 1), repeat=3):
        for shift in product(*shifts):
            other = tuple(a + b for a, b in zip(scores, shift, strict=True))
            worst = max(worst, audit.largest_log_ratio(laws[scores], laws[other]))
    assert (0.9 if name == "exponential_mechanism" else 0.999999) < worst <= 1 + 1e-9


# Counts of three codes with signs: one record moves scores both ways.
SIGNED = np.array([[1, -1, 0], [-1, 1, 0], [-1, -1, 1]])
COUNTED = np.eye(3, dtype=int)


def worst_loss(name: str, relation: str, table: np.ndarray, monotone: bool) -> float:
    """The epsilon that neighbours see, of a selection that promises 1, by its scale and its law."""
    moved = np.abs(table).max()
    if relation == REPLACE:
        # A record may be absent: the zero row belongs to what a replacement may leave.
        rows = np.vstack([table, np.zeros(3, int)])
        moved = np.abs(rows[:, None] - rows).max()
    scale = choose.selection_scale(int(moved), 1.0, monotone)

    def law(data: tuple[int, ...]) -> audit.Law:
        return LAWS[name](table[list(data)].sum(axis=0).astype(int).tolist(), scale)

    return audit.audit_law(law, (0, 1, 2), promise(relation)).epsilon


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_laws_on_all_neighbours_keep_the_guarantee(name: str, relation: str):
    assert 0.5 < worst_loss(name, relation, SIGNED, False) <= 1 + 1e-9


@pytest.mark.parametrize("name", LAWS)
def test_monotone_scores_need_no_factor_two(name: str):
    assert 0.5 < worst_loss(name, ADD, COUNTED, True) <= 1 + 1e-9


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_missing_factor_two_is_caught(name: str, relation: str, monkeypatch: pytest.MonkeyPatch):
    original = choose.selection_scale
    monkeypatch.setattr(choose, "selection_scale", lambda *arguments: original(*arguments) / 2)
    assert worst_loss(name, relation, SIGNED, False) > 1.2


@pytest.mark.parametrize("name", LAWS)
def test_monotone_scale_for_scores_that_move_both_ways_is_caught(name: str):
    assert worst_loss(name, ADD, SIGNED, True) > 1.2
    assert worst_loss(name, REPLACE, COUNTED, True) > 1.2


def draws(name: str, scores: np.ndarray, runs: int, **named: bool) -> list[int]:
    noise = NoiseSource() if name == "exponential_mechanism" else Seeded(7)
    pick = getattr(choose, name)
    return [pick(scores, 1, 1.0, noise, **named) for _ in range(runs)]


@pytest.mark.slow
@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("base", [0, 2**60, -(2**60)])
def test_draws_follow_the_law_and_no_other_scale(name: str, base: int):
    drawn = draws(name, base + SCORES, 6000)
    assert audit.audit_sampler(drawn, LAWS[name](SCORES.tolist(), 2.0)).passes
    for wrong in (1.0, 1.6, 2.5):
        assert not audit.audit_sampler(drawn, LAWS[name](SCORES.tolist(), wrong)).passes


@pytest.mark.slow
@pytest.mark.parametrize("name", LAWS)
def test_draws_from_the_operating_system_and_with_the_monotone_scale(name: str):
    pick, noise = getattr(choose, name), NoiseSource()
    drawn = [pick(SCORES, 1, 1.0, noise, monotone=True) for _ in range(5000)]
    assert audit.audit_sampler(drawn, LAWS[name](SCORES.tolist(), 1.0)).passes
    assert not audit.audit_sampler(drawn, LAWS[name](SCORES.tolist(), 2.0)).passes


@pytest.mark.parametrize("name", LAWS)
def test_far_scores_and_single_candidates(name: str):
    ends = np.array([-(2**63), 2**63 - 1])
    assert set(draws(name, ends, 20)) == {1}
    assert set(draws(name, np.array([-5]), 3)) == {0}
    # The best of many, by far.
    scores = np.zeros(1000, np.int64)
    scores[617] = 10**6
    assert set(draws(name, scores, 3)) == {617}


@pytest.mark.slow
def test_accuracy_bound_of_a_thousand_candidates():
    bound = 2 * (math.log(1000) + math.log(1 / 0.05))
    assert bound == pytest.approx(19.8070, rel=1e-5)
    worst = np.full(1000, -math.ceil(bound))
    worst[0] = 0
    for name, law_of in LAWS.items():
        assert 1 - law_of(worst.tolist(), 2.0)[0] <= 0.05, name


def test_the_scale_is_what_the_noise_gets_and_is_rounded_up():
    noise = NoNoise()
    choose.exponential_mechanism(SCORES, 3, 0.1, noise)
    (draw,) = noise.draws
    assert 60 <= draw.scale < 60 + 1e-10
    for sensitivity, epsilon in product([1, 3, 7, 2**40 + 1], [0.1, 0.3, 1.0, 1e5]):
        scale = choose.selection_scale(sensitivity, epsilon)
        assert scale * epsilon >= 2 * sensitivity


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize(
    "change",
    [
        {"sensitivity": 0},
        {"sensitivity": 1.5},
        {"sensitivity": True},
        {"epsilon": 0.0},
        {"epsilon": math.nan},
        {"epsilon": math.inf},
        {"epsilon": 1e-16},
        {"scores": np.array([1.0, 2.0])},
        {"scores": np.zeros((2, 2), np.int64)},
        {"scores": np.zeros(0, np.int64)},
    ],
    ids=str,
)
def test_public_parameters_out_of_range_are_refused(name: str, change: dict):
    arguments = {"scores": SCORES, "sensitivity": 1, "epsilon": 1.0, **change}
    with pytest.raises(InputError, match=next(iter(change))):
        getattr(choose, name)(**arguments, noise=NoNoise())
