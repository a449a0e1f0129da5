"""A fixture for folders whose tests release tables in memory: the noise has the test's seed."""

import itertools

import pytest
from noise_sources import Seeded


@pytest.fixture(autouse=True)
def seeded_releases(fresh_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each release of a test gets other noise: the same at each landing."""
    seeds = itertools.count(fresh_seed)
    monkeypatch.setattr("beam_dp.in_memory.NoiseSource", lambda: Seeded(next(seeds)))
