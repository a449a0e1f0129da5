"""What noisy distances of pairs from independence say of fitted tables."""

from itertools import combinations

import numpy as np
import pytest
from tiny import domain_of

from beam_dp.releases.synthetic_database.measured_tables import IndependentTables, PairDistances

NUMBER, DEVIATION = 10_000.0, 20.0
DOMAIN = domain_of(2, 2, 2, 2)
PAIRS = list(combinations(range(4), 2))
# Of four cells with a quarter of the records each, sampling alone gives this distance.
SAMPLED = 4 * np.sqrt(2 / np.pi * NUMBER / 4)


def fitted(share: float) -> np.ndarray:
    """Returns a table whose distance from independence is a share of all records."""
    return 0.25 + share / 4 * np.array([[1.0, -1.0], [-1.0, 1.0]])


def distances(noisy: dict[tuple[int, ...], float]) -> PairDistances:
    names = {axes: tuple(DOMAIN.names[axis] for axis in axes) for axes in noisy}
    potentials = tuple(((name,), np.zeros(2)) for name in DOMAIN.names)
    independent = IndependentTables(NUMBER, 64, potentials)
    return PairDistances(
        DEVIATION, {names[axes]: distance for axes, distance in noisy.items()}, independent
    )


def test_tables_that_agree_with_their_distances_stay():
    tables = {axes: fitted(0.1 * place) for place, axes in enumerate(PAIRS)}
    shown = {axes: np.hypot(1000.0 * place, SAMPLED) for place, axes in enumerate(PAIRS)}
    for axes, less in distances(shown).shrunk(DOMAIN, tables).items():
        assert less == pytest.approx(tables[axes], abs=1e-9)


@pytest.mark.parametrize("shown", [0.0, 0.1, 0.25])
def test_dependence_that_a_distance_does_not_show_goes(shown):
    tables = {axes: fitted(0.1) for axes in PAIRS} | {(0, 1): fitted(0.3)}
    noisy = {axes: np.hypot(1000.0, SAMPLED) for axes in PAIRS}
    noisy[0, 1] = np.hypot(NUMBER * shown, SAMPLED)
    less = distances(noisy).shrunk(DOMAIN, tables)
    # The pair's own distance says nearly all, because its noise is small.
    assert less[0, 1] == pytest.approx(fitted(shown), abs=0.01)
    assert all(less[axes] == pytest.approx(fitted(0.1), abs=1e-9) for axes in {*less} - {(0, 1)})


def test_cells_without_weight_and_pairs_without_a_distance_stay():
    table = np.array([[0.5, 0.2], [0.3, 0.0]])
    less = distances({(0, 1): 0.0}).shrunk(DOMAIN, {(0, 1): table, (1, 2): table})
    assert [*less] == [(0, 1)]
    assert less[0, 1][1, 1] == 0 and less[0, 1].sum() == pytest.approx(1)
    assert not PairDistances(1.0, {("a0", "a1"): 1.0}).shrunk(DOMAIN, {})
