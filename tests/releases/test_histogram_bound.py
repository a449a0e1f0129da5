"""The bound of a histogram holds at its stated probability, selection included."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from beam_dp.releases.histogram_bound import selected_noise_bound

_RUNS = 1000
_FAILURE = 0.05


@pytest.mark.parametrize("num_keys", [1, 5, 200])
@pytest.mark.parametrize("distance", [-5, 0, 30])
def test_bound_fails_at_most_as_often_as_stated(num_keys: int, distance: int) -> None:
    # A false alarm has probability 1e-9: the binomial tail of 1,000 runs.
    scale, threshold = 3.0, 60
    generator = np.random.default_rng(7)
    weights = np.ones(num_keys)
    counts = np.where(np.arange(num_keys) % 2, threshold - 3, threshold + distance)
    failures = 0
    for _ in range(_RUNS):
        ratio = 1 - math.exp(-1 / scale)
        noise = generator.geometric(ratio, num_keys) - generator.geometric(ratio, num_keys)
        kept = counts + noise >= threshold
        error = float(np.where(kept, noise, -counts).sum())
        missing = threshold * int((~kept).sum())
        whole = selected_noise_bound(scale, weights, float(num_keys), _FAILURE) + missing
        held = selected_noise_bound(scale, weights, float(kept.sum()), _FAILURE)
        failures += abs(error) > whole or abs(float(noise[kept].sum())) > held
    assert failures <= stats.binom.isf(1e-9, _RUNS, _FAILURE)
