"""Releases for sparse queries: their files, and the error bound of a histogram."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import fastavro
import numpy as np
import pytest
from damaged_files import refusal_of
from rich.console import Console
from scipy import stats

import beam_dp as dp
from beam_dp.hashing.keys import HashKey, universe_elements
from beam_dp.mechanisms.sketches.plan import INDEPENDENCE
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.releases.files.avro import encode_longs
from beam_dp.releases.kinds import read_release, release_from_bytes, release_to_bytes, write_release
from beam_dp.releases.sketches.describe import describe_sparse_release, report_sparse_release
from beam_dp.releases.sketches.estimates import selected_noise_bound
from beam_dp.releases.sketches.release import NoisyCounts, NoisySketch, SparseRelease

DRAW = "0123456789abcdef0123456789abcdef"
KEY = HashKey.draw(8)


def release_of(width: int = 3 * 2**16, *, sketch: bool = True, histogram: bool = True) -> Any:
    rng = np.random.default_rng(5)
    cells = rng.integers(-9, 9, width)
    cells[:4] = [2**62, -(2**62), 2**63 - 1, -(2**63)]
    elements = np.unique(rng.integers(0, 2**64, 900, np.uint64))
    return SparseRelease(
        draw_id=DRAW,
        mechanism="hybrid_sketch",
        guarantee=Guarantee(1.0, 1e-9, "add_or_remove_one", "person", 2),
        hash_key=KEY,
        max_sparsity=10,
        max_weight=7,
        plan={"key": {"key": "email", "key_type": "text", "weight": None, "rule": 2}},
        sketch=NoisySketch(
            "blocks", len(cells), 3, "discrete_laplace", 3.5, "clipped_mean", 4, cells=cells
        )
        if sketch
        else None,
        histogram=NoisyCounts(elements, rng.integers(50, 900, len(elements)), 2.5, 50)
        if histogram
        else None,
    )


def listed_release(key_type: str = "text") -> Any:
    keys: list[Any] = [f"{i} ü{'!' * i}" for i in range(40)]
    keys = [key.encode() for key in keys] if key_type == "bytes" else keys
    elements = universe_elements(keys, KEY)
    order = np.argsort(elements)
    held = np.empty(len(keys), object)
    held[:] = [None if place == 7 else keys[place] for place in order]
    histogram = NoisyCounts(elements[order], 50 + np.arange(40), 2.5, 50, held)
    plan = {"key": {"key": "email", "key_type": key_type, "rule": 2, "list_keys": True}}
    return dataclasses.replace(release_of(sketch=False), plan=plan, histogram=histogram)


def assert_same(one: SparseRelease, other: SparseRelease) -> None:
    for name in ("draw_id", "mechanism", "guarantee", "hash_key", "max_sparsity", "max_weight"):
        assert getattr(one, name) == getattr(other, name)
    assert dict(one.plan) == dict(other.plan)
    for part in ("sketch", "histogram"):
        mine, theirs = getattr(one, part), getattr(other, part)
        assert (mine is None) == (theirs is None)
        for name, value in vars(mine).items() if mine is not None else ():
            np.testing.assert_array_equal(value, getattr(theirs, name))


def test_sketch_refuses_more_cells_than_its_width():
    with pytest.raises(dp.InputError, match=r"cells: \(7,\) is not valid: must be \(6,\)"):
        NoisySketch("blocks", 6, 3, "discrete_laplace", 3.5, cells=np.zeros(7, np.int64))


@pytest.mark.parametrize(("sketch", "histogram"), [(True, True), (True, False), (False, True)])
def test_sketch_release_round_trips_through_files(tmp_path, sketch, histogram):
    release = release_of(sketch=sketch, histogram=histogram)
    write_release(release, tmp_path)
    found = read_release(tmp_path)
    assert isinstance(found, SparseRelease)
    assert_same(found, release)
    again = release_from_bytes(release_to_bytes(release))
    assert isinstance(again, SparseRelease)
    assert_same(again, release)


@pytest.mark.parametrize("key_type", ["text", "bytes"])
def test_listed_keys_round_trip_through_files(tmp_path, key_type):
    release = listed_release(key_type)
    write_release(release, tmp_path)
    found = read_release(tmp_path, kind=SparseRelease)
    assert_same(found, release)
    assert len(found.listed_keys()) == 39
    with (tmp_path / f"histogram-{DRAW}.avro").open("rb") as file:
        rows = list(fastavro.reader(file))
    assert [row["key"] for row in rows] == release.histogram.keys.tolist()


def test_rejects_a_listed_key_of_another_element(tmp_path):
    def rename(data: bytes) -> bytes:
        return data.replace("3 ü!!!".encode(), "4 ü!!!".encode())

    refusal = refusal_of(listed_release(), "histogram", tmp_path, change_data=changed(rename))
    assert "must each belong to its element" in refusal


@pytest.mark.parametrize("change", [{"list_keys": False}, {"key_type": "bytes"}])
def test_rejects_a_card_about_other_lists_of_keys(tmp_path, change):
    def forge(card: Any) -> None:
        card["parameters"]["key"].update(change)

    refusal_of(listed_release(), "histogram", tmp_path, forge)


@pytest.mark.parametrize("change", [lambda data: data[:-40], lambda data: data + data[-16:]])
def test_rejects_a_damaged_list_of_keys(tmp_path, change):
    refusal_of(listed_release(), "histogram", tmp_path, change_data=changed(change))


def test_description_and_report_show_hostile_keys_as_text():
    release = listed_release()
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
    release = release_of()
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda card: card.update(hash_family="md5"), "hash_family = 'md5': must be 'bivariate"),
        (lambda card: card.update(draw_id="0" * 32), "must be the payload of the card's draw"),
        (lambda card: card.update(max_sparsity=0), "max_sparsity = 0"),
        (lambda card: card.update(max_sparsity=True), "max_sparsity = True"),
        (lambda card: card.update(max_weight=2**60), "max_weight"),
        (lambda card: card.update(sketch=None, histogram=None), "a sketch or a histogram"),
        (lambda card: card["parameters"]["key"].update(key_type="float"), "key_type"),
        (lambda card: card["parameters"]["key"].update(rule=3), "rule of keys = 3: must be 2"),
        (lambda card: card["parameters"]["key"].pop("rule"), "rule of keys = None: must be 2"),
        (lambda card: card["sketch"].update(family="sparse"), "family = 'sparse'"),
        (lambda card: card["sketch"].update(estimator=[]), "estimator"),
        (lambda card: card["sketch"].update(projection_width=2**40), "projection_width"),
        (lambda card: card["sketch"].update(projection_width=9), "projection"),
        (lambda card: card["sketch"].update(num_blocks=0), "num_blocks = 0"),
        (lambda card: card["sketch"].update(num_blocks=7), "multiple"),
        (lambda card: card["sketch"].update(family="dense"), "as many rows as cells"),
        (lambda card: card["sketch"].update(scale=0), "scale = 0"),
        (lambda card: card["sketch"].update(scale=2.0**60), "scale"),
        (lambda card: card["sketch"].update(grid=0), "grid = 0"),
        (lambda card: card["sketch"].pop("grid"), "grid"),
        (lambda card: card["sketch"].update(more=1), "sketch"),
        (lambda card: card["histogram"].update(threshold=51), "threshold"),
        (lambda card: card["histogram"].update(num_elements=9), "more elements"),
        (lambda card: card["histogram"].update(num_elements=10**6), "fewer elements"),
        (lambda card: card["files"].pop(f"histogram-{DRAW}.avro"), "payload"),
        (lambda card: card.pop("guarantee"), "guarantee"),
    ],
)
def test_rejects_hostile_cards(tmp_path, change, message):
    assert message in refusal_of(release_of(), "hash key", tmp_path, change, max_lines=100_000)


def changed(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Checks that a change has an effect."""

    def checked(good: bytes) -> bytes:
        data = change(good)
        assert data != good
        return data

    return checked


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("hash-key", lambda data: data.replace(b"GF(2^64), 1", b"GF(2^64), 2")),
        ("hash-key", lambda data: data.replace(b"beam_dp hash key 1", b"beam_dp hash key 2")),
        ("projection", lambda data: data[:-40]),
        ("projection", lambda data: data[:-200] + b"\x80" * 184 + data[-16:]),
        ("histogram", lambda data: data[:-40]),
        ("histogram", lambda data: data.replace(b"element", b"elemint")),
        ("histogram", lambda data: data + data[-16:]),
    ],
)
def test_rejects_damaged_files(tmp_path, name, change):
    refusal_of(release_of(), name, tmp_path, change_data=changed(change), max_lines=100_000)


def test_rejects_elements_out_of_order(tmp_path):
    elements = release_of().histogram.elements.view(np.int64)

    def swap(data: bytes) -> bytes:
        start, then = encode_longs(elements[:1]), encode_longs(elements[1:2])
        return (
            data.replace(start, b"?" * len(then), 1)
            .replace(then, start, 1)
            .replace(b"?" * len(then), then, 1)
        )

    assert "ascending" in refusal_of(
        release_of(), "histogram", tmp_path, change_data=changed(swap), max_lines=100_000
    )


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
