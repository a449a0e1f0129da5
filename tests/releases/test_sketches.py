"""Releases for sparse queries: their files, and the error bound of a histogram."""

from __future__ import annotations

import math

import fastavro
import numpy as np
import pytest
from kind_examples import DRAW, KEY, listed_keys, sketch_of
from rich.console import Console
from scipy import stats

from beam_dp.hashing.keys import HashKey
from beam_dp.mechanisms.sketches.plan import INDEPENDENCE
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.releases.kinds import write_release
from beam_dp.releases.sketches.describe import describe_sparse_release, report_sparse_release
from beam_dp.releases.sketches.estimates import selected_noise_bound
from beam_dp.releases.sketches.release import NoisyCounts, SparseRelease


def test_description_and_report_show_hostile_keys_as_text():
    release = listed_keys()
    release.histogram.keys[-1] = "<script>\x1b[31m\u202e"
    console = Console(width=80)
    with console.capture() as captured:
        console.print(describe_sparse_release(release))
    shown = captured.get()
    assert "<script>" in shown and "\x1b" not in shown and "\u202e" not in shown
    assert "and 19 more: release.listed_keys() in Python" in shown
    page = "".join(report_sparse_release(release, None).sections.values())
    assert "&lt;script&gt;" in page and "<script>" not in page and "\u202e" not in page


def test_fastavro_reads_the_payload(tmp_path):
    release = sketch_of()
    write_release(release, tmp_path)
    rows = {}
    for name in ("projection", "histogram", "hash-key"):
        with (tmp_path / f"{name}-{DRAW}.avro").open("rb") as file:
            rows[name] = list(fastavro.reader(file))
    cells = [cell for row in rows["projection"] for cell in row["cells"]]
    np.testing.assert_array_equal(cells, release.sketch.cells)
    assert [row["first_cell"] for row in rows["projection"]] == [0, 2**16, 2**17]
    assert [row["count"] for row in rows["histogram"]] == release.histogram.counts.tolist()
    elements = [row["element"] % 2**64 for row in rows["histogram"]]
    assert elements == release.histogram.elements.tolist()
    assert HashKey.from_bytes(rows["hash-key"][0]["key"]) == KEY


_RUNS = 1000
_FAILURE = 0.05


@pytest.mark.parametrize("num_keys", [1, 5, 200])
@pytest.mark.parametrize("distance", [-5, 0, 30])
def test_noise_bound_fails_at_most_as_often_as_stated(num_keys, distance):
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


@pytest.mark.parametrize("count", [30, 57, 60, 200])
def test_bounds_of_answers_fail_at_most_as_often_as_stated(count):
    # A false alarm has probability 1e-9, as above.
    scale, threshold, num_keys = 3.0, 60, 6
    generator = np.random.default_rng(8)
    elements = np.arange(num_keys, dtype=np.uint64)
    guarantee = Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
    key = HashKey.draw(INDEPENDENCE)
    counts = np.where(elements % 2, count, threshold - 1).astype(np.int64)
    failures = 0
    for _ in range(_RUNS):
        ratio = 1 - math.exp(-1 / scale)
        noisy = counts + generator.geometric(ratio, num_keys) - generator.geometric(ratio, num_keys)
        kept = noisy >= threshold
        histogram = NoisyCounts(elements[kept], noisy[kept], scale, threshold)
        release = SparseRelease(
            "stability_histogram",
            key,
            num_keys,
            1,
            {},
            histogram=histogram,
            draw_id="0",
            guarantee=guarantee,
        )
        answer = release.answer(elements, np.ones(num_keys))
        failures += abs(answer.value - int(counts.sum())) > answer.bound
    assert answer.failure_probability == _FAILURE
    assert failures <= stats.binom.isf(1e-9, _RUNS, _FAILURE)
