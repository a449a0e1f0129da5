"""Sparse releases through Beam: exact sums, bounded units, one draw; nothing tells of records."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import apache_beam as beam
import fakes
import numpy as np
import pyarrow as pa
import pytest
from job_pages import counters, expected

from beam_dp.errors import InputError
from beam_dp.hashing.keys import HashKey, universe_elements
from beam_dp.mechanisms.sketches.mechanisms import (
    CountSketch,
    HybridSketch,
    SparseProject,
    StabilityHistogram,
)
from beam_dp.mechanisms.sketches.plan import SparsePlan
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.sparse import SparseQuery
from beam_dp.releases.kinds import read_release
from beam_dp.releases.sketches.release import SparseRelease
from beam_dp.summaries.element_counts import ElementCounts
from beam_dp.summaries.projection import ProjectionAccumulator
from beam_dp.transforms import KeyColumns, ReleaseProjection, WriteRelease
from beam_dp.transforms.counting.count_keys import CountElements, counts_of_shards
from beam_dp.transforms.counting.limit_contributions import LimitKeys
from beam_dp.transforms.counting.summarise import EncodeKeys, Summarise

HUGE = 1e6  # an epsilon whose noise is 0 but with a probability that no test will see
COLUMNS = KeyColumns("email")
RECORDS = [{"email": f"{i % 40}@example.org", "person": i // 3} for i in range(600)]


def plan(mechanism: Any, unit: str = "record", k: int = 1, epsilon: float = HUGE) -> SparsePlan:
    promise = Guarantee(epsilon, 1e-9, "add_or_remove_one", unit, k)
    made: SparsePlan = mechanism.plan(promise, max_sparsity=10, max_weight=5)
    return made


def exact(records: list[dict[str, Any]], plan: SparsePlan) -> np.ndarray:
    """The projection of records, with no Beam."""
    assert plan.sketch is not None
    signs = plan.sketch.signs(plan.hash_key)
    keys = universe_elements([record["email"] for record in records], plan.hash_key)
    return signs.project(keys, np.ones(len(keys), np.int64))


def release(
    records: Any, plan: SparsePlan, folder: Path, columns: KeyColumns = COLUMNS, **how: Any
) -> SparseRelease:
    with fakes.pipeline(**how) as pipeline:
        _ = (
            pipeline
            | beam.Create(records)
            | ReleaseProjection(plan, columns)
            | WriteRelease(folder / "out")
        )
    found = read_release(folder / "out")
    assert isinstance(found, SparseRelease)
    return found


SKETCHES = [
    SparseProject(128, family="dense"),
    SparseProject(2**18, num_blocks=8),
    CountSketch(3 * 2**17),
]


@pytest.mark.job
@pytest.mark.parametrize("mechanism", SKETCHES, ids=lambda each: f"{each.projection_width}")
def test_distributed_projection_is_exact(mechanism):
    made = plan(mechanism)
    assert made.sketch is not None
    accumulator = ProjectionAccumulator(made.sketch.signs(made.hash_key))
    shards: list[Any] = (
        RECORDS
        | EncodeKeys(COLUMNS, 5, made.hash_key, "record")
        | LimitKeys(made)
        | Summarise(accumulator)
    )
    np.testing.assert_array_equal(accumulator.from_shards(shards).sums, exact(RECORDS, made))
    assert max(len(shard) for _, shard in shards) <= 2**20 + 8


@pytest.mark.job
@pytest.mark.parametrize("size", [1, 7, 600])
def test_counts_do_not_depend_on_batches(size):
    key = HashKey.draw(4)
    table = pa.Table.from_pylist(RECORDS)
    batches = [table.slice(start, size) for start in range(0, 600, size)]
    shards: list[bytes] = batches | EncodeKeys(COLUMNS, 1, key, "record") | CountElements()
    counts = counts_of_shards(shards)
    keys = universe_elements([record["email"] for record in RECORDS], key)
    elements, numbers = np.unique(keys, return_counts=True)
    np.testing.assert_array_equal(counts.elements, elements)
    np.testing.assert_array_equal(counts.counts, numbers)


@pytest.mark.job
def test_adding_a_unit_only_adds_its_k_kept_records():
    made = plan(StabilityHistogram(), "person", 2)
    encode = EncodeKeys(COLUMNS, 1, made.hash_key, "person")

    def bounded(records: list[dict[str, Any]]) -> dict[int, int]:
        counts = counts_of_shards(records | encode | LimitKeys(made) | CountElements())
        return dict(zip(counts.elements.tolist(), counts.counts.tolist(), strict=True))

    everybody, without = bounded(RECORDS), bounded(RECORDS[3:])
    assert sum(everybody.values()) == 400
    changes = [everybody[key] - without.get(key, 0) for key in everybody]
    assert set(changes) <= {0, 1, 2}
    assert sum(changes) == 2


@pytest.mark.job
def test_norm_of_the_sketch_of_a_unit_is_bounded():
    rows, norm = 3, 2.0
    made = plan(CountSketch(rows * 64, rows, noise="gaussian", unit_norm=norm), "person", 50)
    assert made.sketch is not None and made.sketch.max_squared_norm == 12
    accumulator = ProjectionAccumulator(made.sketch.signs(made.hash_key))
    one_unit = [{"email": f"{i % 4}@example.org", "person": 1} for i in range(50)]

    def squared(records: list[dict[str, Any]]) -> int:
        encoded = records | EncodeKeys(COLUMNS, 1, made.hash_key, "person")
        sums = accumulator.from_shards(encoded | LimitKeys(made) | Summarise(accumulator)).sums
        return int((sums**2).sum())

    assert 0 < squared(one_unit) <= 12


@pytest.mark.job
def test_kept_records_of_a_unit_depend_only_on_the_unit():
    made = plan(CountSketch(3 * 64, 3, noise="gaussian", unit_norm=2.0), "person", 50)
    encode = EncodeKeys(COLUMNS, 1, made.hash_key, "person")
    one_unit = [{"email": f"{i}@example.org", "person": 1} for i in range(40)]
    others = [{"email": "x", "person": i} for i in range(2, 9)]
    (x,) = universe_elements(["x"], made.hash_key)

    def kept(records: list[dict[str, Any]]) -> list[int]:
        keys = np.concatenate([each.keys for each in records | encode | LimitKeys(made)])
        return sorted(keys[keys != x].tolist())

    alone = kept(one_unit)
    assert 0 < len(alone) < 40
    for seed in range(5):
        shuffled = np.random.default_rng(seed).permutation(np.array([*others, *one_unit]))
        assert kept(shuffled.tolist()) == alone


@pytest.mark.job
def test_leaves_out_heavy_record_if_each_record_is_a_unit():
    made = plan(CountSketch(3 * 64, 3, noise="gaussian", unit_norm=2.0))
    records = [{"email": "a", "n": weight} for weight in (1, 2, 3, 5)]
    columns = KeyColumns("email", weight="n")
    batches = records | EncodeKeys(columns, 5, made.hash_key, "record") | LimitKeys(made)
    assert sorted(np.concatenate([batch.weights for batch in batches])) == [1, 2]


@pytest.mark.job
def test_clamps_weights_and_leaves_out_records_without_one():
    key = HashKey.draw(4)
    weights = [1, 3, 900, -4, 0, None, "2", "x", 2.5, 2.0]
    records = [{"email": "a", "n": weight} for weight in weights]
    batches = records | EncodeKeys(KeyColumns("email", weight="n"), 5, key, "record")
    assert sorted(np.concatenate([batch.weights for batch in batches])) == [1, 2, 2, 3, 5]


@pytest.mark.job
@pytest.mark.parametrize(
    "mechanism",
    [*SKETCHES, StabilityHistogram(), HybridSketch(3 * 2**10, 3)],
    ids=lambda each: f"{each.name}{getattr(each, 'projection_width', '')}",
)
def test_written_release_answers_queries(mechanism, tmp_path):
    found = release(RECORDS, plan(mechanism), tmp_path)
    query = universe_elements([f"{i}@example.org" for i in range(8)], found.hash_key)
    answer = found.answer(query, np.ones(8))
    # Another key in a cell of a clipped mean moves the answer by at most half a scale of noise.
    moved = 0.5 * found.sketch.scale if found.sketch is not None else 0.0
    assert answer.value == pytest.approx(120, abs=5 * answer.standard_error + 3 * moved)


@pytest.mark.job
@pytest.mark.parametrize("mechanism", [CountSketch(3 * 64), StabilityHistogram()])
def test_key_does_not_depend_on_the_spelling_of_its_integer(mechanism, tmp_path):
    texts: list[Any] = ["7", "7.0", b"7.0", 7, 7.0, "7.00"]
    records = [{"email": text} for text in texts for _ in range(200)]
    found = release(records, plan(mechanism), tmp_path)
    for text, count in (("7.0", 1000), ("7", 1000), ("7.00", 200), ("8.0", 0)):
        assert found.answer_query(SparseQuery({text: 1})).value == pytest.approx(count, abs=1)
    with pytest.raises(
        InputError, match=r"'7' is not valid: must be given once: '7.0' is the same"
    ):
        found.answer_query(SparseQuery({"7.0": 1, "7": 1}))


@pytest.mark.job
def test_empty_input_gives_release_of_the_same_shape(tmp_path):
    made = plan(HybridSketch(2**10), epsilon=1.0)
    empty = release([], made, tmp_path / "empty")
    full = release(RECORDS, made, tmp_path / "full")
    assert empty.sketch is not None and full.sketch is not None
    assert empty.sketch.cells.shape == full.sketch.cells.shape
    names = [
        sorted(name.replace(each.draw_id, "") for name in _names(tmp_path / folder / "out"))
        for each, folder in ((empty, "empty"), (full, "full"))
    ]
    assert names[0] == names[1]


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.mark.job
def test_repeated_bundles_commit_one_draw(tmp_path):
    found = release(RECORDS, plan(CountSketch(3 * 64), epsilon=1.0), tmp_path, bundle_repeat=2)
    assert {name for name in _names(tmp_path / "out") if found.draw_id not in name} == {"card.json"}


@pytest.mark.job
def test_repeated_bundles_count_each_record_once(tmp_path):
    made = plan(CountSketch(3 * 64))
    found = release(RECORDS, made, tmp_path, bundle_repeat=2)
    assert found.sketch is not None
    assert made.sketch is not None
    np.testing.assert_array_equal(found.sketch.cells, made.sketch.fold(exact(RECORDS, made)))


CANARY = "canary-4711@example.org"


@pytest.mark.job
def test_logs_and_metrics_contain_no_records(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    for number, records in enumerate(([], [{"email": CANARY, "person": CANARY}] * 50)):
        pipeline = fakes.pipeline()
        release_it = ReleaseProjection(plan(HybridSketch(64), "person", epsilon=1.0), COLUMNS)
        _ = (
            pipeline
            | beam.Create([*records, {"email": object(), "person": []}, None, 3])
            | release_it
            | WriteRelease(tmp_path / str(number))
        )
        result = pipeline.run()
        result.wait_until_finish()
        assert counters(result) == expected(tmp_path / str(number))
        for path in (tmp_path / str(number)).iterdir():
            assert CANARY.encode() not in path.read_bytes()
    assert "canary" not in caplog.text


def test_pipeline_graph_contains_no_drawn_noise():
    release_it = ReleaseProjection(plan(CountSketch(3 * 64), epsilon=1.0), COLUMNS)
    assert b"NoiseSource" not in beam.internal.pickler.dumps(release_it)


@pytest.mark.job
def test_empty_input_gives_no_shards_and_readable_counts():
    assert isinstance(counts_of_shards([]), ElementCounts)
    assert list([] | EncodeKeys(COLUMNS, 1, HashKey.draw(4), "record") | CountElements()) == []
