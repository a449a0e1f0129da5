"""Sparse releases through Beam: exact sums, bounded units, one draw, lists of keys."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from fakes import outputs
from sketch_laws import Shifted, seeded_key

import beam_dp as dp
import beam_dp.secret.encoding.keys as keys_module
from beam_dp.hashing.keys import HashKey, universe_elements
from beam_dp.mechanisms.sketches.plan import SparsePlan, SparseSummary
from beam_dp.secret.summaries.sparse_counts import ElementCounts
from beam_dp.transforms.counting import count_keys
from beam_dp.transforms.counting.count_keys import EncodeKeys
from beam_dp.transforms.sketches import LimitKeys

HUGE = 1e6  # an epsilon whose noise is 0 but with a probability that no test will see
COLUMNS = dp.KeyColumns("email")
RECORDS = [{"email": f"{i % 40}@example.org", "person": i // 3} for i in range(600)]
KEY = HashKey(4, np.arange(1, 11, dtype=np.uint64), bytes(16))


@pytest.fixture(autouse=True)
def fixed_keys(monkeypatch) -> None:
    """Plans draw hashes of fixed seeds, so that no answer is wrong by chance."""
    seeds = itertools.count()
    draw = classmethod(lambda cls, independence=48: seeded_key(next(seeds), independence))
    monkeypatch.setattr(HashKey, "draw", draw)


def plan(
    mechanism: Any, unit: str = "record", k: int = 1, epsilon: float = HUGE, most: int = 5
) -> SparsePlan:
    promise = dp.Guarantee(epsilon, 1e-9, "add_or_remove_one", unit, k)
    made: SparsePlan = mechanism.plan(promise, max_sparsity=10, max_weight=most)
    return made


def released(folder: Path, cases: dict[str, tuple[Any, Any]], **how: Any) -> dict[str, Any]:
    """Releases, each of records and a transform, of one pipeline."""
    outputs(
        {
            name: lambda p, name=name, records=records, release=release: (
                p | beam.Create(records) | release | dp.WriteRelease(folder / name)
            )
            for name, (records, release) in cases.items()
        },
        **how,
    )
    return {name: dp.read_release(folder / name, kind=dp.SparseRelease) for name in cases}


SMALL = dp.CountSketch(3 * 64)
CLIPPED = dp.CountSketch(3 * 64, 3, noise="gaussian", unit_norm=2.0)
TEXTS_OF_7 = [{"email": text} for text in ["7", "7.0", b"7.0", 7, 7.0, "7.00"] for _ in range(200)]
# Keys that are listed.
LISTED = dp.KeyColumns("city", list_keys=True)
LONG = "Llanfairpwllgwyngyll" * 12 + "ABC"  # 243 bytes
CITIES: list[Any] = ["Bern", "Bern ", "Zürich", LONG, LONG[:-1] + "D", LONG + "x" * 14, "7", "7.0"]
CITIES += [7, b"\xff\xfe", "", None, 2.5]
OF_CITIES = [
    {"city": city, "person": f"{number}/{i}"}
    for number, city in enumerate(CITIES)
    for i in range(2 + number)
]
# The long one has 257 bytes; 7, "7" and "7.0" are one key; a null and a fraction are none.
EXPECTED = {"Bern": 2, "Bern ": 3, "Zürich": 4, LONG: 5, LONG[:-1] + "D": 6, "7": 8 + 9 + 10}
EXPECTED |= {"": 12}


def listing(mechanism: Any, unit: str = "record", k: int = 1, columns: Any = LISTED) -> SparsePlan:
    return dp.ReleaseProjection(plan(mechanism, unit, k, most=1), columns).plan


@pytest.mark.job
def test_written_releases_answer_queries(tmp_path):
    """Of any mechanism; a key does not depend on the spelling of its integer."""
    mechanisms = {
        "dense": dp.SparseProject(128, family="dense"),
        "blocks": dp.SparseProject(2**12, num_blocks=8),
        "count sketch": dp.CountSketch(3 * 2**10),
        "histogram": dp.StabilityHistogram(),
        "hybrid": dp.HybridSketch(3 * 2**10, 3),
    }
    found = released(
        tmp_path,
        {
            **{
                name: (RECORDS, dp.ReleaseProjection(plan(each), COLUMNS))
                for name, each in mechanisms.items()
            },
            **{
                f"spelling, {each.name}": (TEXTS_OF_7, dp.ReleaseProjection(plan(each), COLUMNS))
                for each in (SMALL, dp.StabilityHistogram())
            },
            **{
                f"listed, {each.name}": (
                    OF_CITIES,
                    dp.ReleaseProjection(plan(each, most=1), LISTED),
                )
                for each in (dp.StabilityHistogram(), dp.HybridSketch(2**10))
            },
            "listed, nothing": (
                [],
                dp.ReleaseProjection(plan(dp.StabilityHistogram(), most=1), LISTED),
            ),
            "empty": ([], dp.ReleaseProjection(plan(dp.HybridSketch(2**10), epsilon=1.0), COLUMNS)),
            "full": (
                RECORDS,
                dp.ReleaseProjection(plan(dp.HybridSketch(2**10), epsilon=1.0), COLUMNS),
            ),
        },
    )
    for name in mechanisms:
        query = universe_elements([f"{i}@example.org" for i in range(8)], found[name].hash_key)
        answer, sketch = found[name].answer(query, np.ones(8)), found[name].sketch
        # Another key in a cell of a clipped mean moves the answer by at most half a scale of noise.
        moved = 0.5 * sketch.scale if sketch is not None else 0.0
        assert answer.value == pytest.approx(120, abs=5 * answer.standard_error + 3 * moved)
    for name in [name for name in found if name.startswith("spelling")]:
        for text, count in (("7.0", 1000), ("7", 1000), ("7.00", 200), ("8.0", 0)):
            answer = found[name].answer_query(dp.SparseQuery({text: 1}))
            assert answer.value == pytest.approx(count, abs=1)
        with pytest.raises(dp.InputError, match=r"must be given once: '7.0' is the same"):
            found[name].answer_query(dp.SparseQuery({"7.0": 1, "7": 1}))
    for name in ("listed, stability_histogram", "listed, hybrid_sketch"):
        keys = found[name].listed_keys()
        assert dict(keys) == EXPECTED
        assert [count for _, count in keys] == sorted(EXPECTED.values(), reverse=True)
        # Keys that cannot be listed have a count.
        assert len(found[name].histogram.counts) == len(EXPECTED) + 2
    assert found["listed, nothing"].listed_keys() == []
    # A release of no records has the same shape.
    empty, full = found["empty"], found["full"]
    assert empty.sketch.cells.shape == full.sketch.cells.shape
    names = [
        sorted(path.name.replace(each.draw_id, "") for path in (tmp_path / name).iterdir())
        for name, each in (("empty", empty), ("full", full))
    ]
    assert names[0] == names[1]


def of_weights(weights: list[Any]) -> list[dict[str, Any]]:
    return [{"email": "a", "n": weight} for weight in weights]


def encoded(columns: dp.KeyColumns, most: int, key: HashKey, unit: str = "record") -> EncodeKeys:
    return EncodeKeys(columns, most, key, unit)


@pytest.mark.job
def test_weights_are_clamped_and_heavy_records_are_left_out():
    """That elements and sums are exact is tested with each source, and in any batches apart."""
    weighed = dp.KeyColumns("email", weight="n")
    clipped = plan(CLIPPED)
    found = outputs(
        {
            "nothing": lambda p: (
                p | beam.Create([]) | encoded(COLUMNS, 1, KEY) | count_keys.CountElements()
            ),
            "clamped": lambda p: (
                p
                | beam.Create(of_weights([1, 3, 900, -4, 0, None, "2", "x", 2.5, 2.0]))
                | encoded(weighed, 5, KEY)
            ),
            "heavy": lambda p: (
                p
                | beam.Create(of_weights([1, 2, 3, 5]))
                | encoded(weighed, 5, clipped.hash_key)
                | LimitKeys(clipped)
            ),
        }
    )
    assert found["nothing"] == [] and isinstance(count_keys.counts_of_shards([]), ElementCounts)
    weights = {name: [b.weights for b in found[name]] for name in ("clamped", "heavy")}
    assert sorted(np.concatenate(weights["clamped"])) == [1, 2, 2, 3, 5]
    # Each record is a unit: one that is too heavy is left out.
    assert sorted(np.concatenate(weights["heavy"])) == [1, 2]


def counted_texts(made: SparsePlan, records: Any) -> Callable[[Any], Any]:
    """The exact counts of each text, with no noise."""

    def branch(p: Any) -> Any:
        encode = EncodeKeys(LISTED, 1, made.hash_key, made.guarantee.privacy_unit)
        each = p | beam.Create(records) | encode
        return (
            each[count_keys.KEYS] | LimitKeys(made),
            each[count_keys.TEXTS],
        ) | count_keys.CountListedKeys()

    return branch


def by_text(shards: list[bytes]) -> dict[bytes | None, list[int]]:
    found = count_keys.listed_counts(shards)
    assert found.texts is not None
    texts = collections.defaultdict(list)
    for text, count in zip(found.texts.to_pylist(), found.counts.tolist(), strict=True):
        texts[text].append(count)
    return dict(texts)


@pytest.mark.job
def test_adding_a_unit_only_adds_its_k_kept_records():
    """Of the counts of elements, of those of texts, and of one unit whatever others there are."""
    made, listed = (each(dp.StabilityHistogram(), "person", 2) for each in (plan, listing))
    one = listing(dp.StabilityHistogram(), "person", 1)
    clipped = plan(CLIPPED, "person", 50)
    cities = [{"city": f"city {i % 40} of a long name", "person": i // 3} for i in range(600)]
    one_unit = [{"email": f"{i}@example.org", "person": 1} for i in range(40)]
    same_keys = [{"email": f"{i % 4}@example.org", "person": 1} for i in range(50)]
    others = [{"email": "x", "person": i} for i in range(2, 9)]
    orders = [
        np.random.default_rng(seed).permutation(np.array([*others, *one_unit])).tolist()
        for seed in range(5)
    ]

    def kept(each: SparsePlan, records: Any) -> Callable[[Any], Any]:
        encode = EncodeKeys(COLUMNS, 1, each.hash_key, "person")
        return lambda p: p | beam.Create(records) | encode | LimitKeys(each)

    def elements(records: Any) -> Callable[[Any], Any]:
        return lambda p: kept(made, records)(p) | count_keys.CountElements()

    found = outputs(
        {
            "all elements": elements(RECORDS),
            "fewer elements": elements(RECORDS[3:]),
            "all texts": counted_texts(listed, cities),
            "fewer texts": counted_texts(listed, cities[3:]),
            "a text": counted_texts(
                one, [{"city": f"city {i}", "person": "one"} for i in range(50)]
            ),
            "same keys": kept(clipped, same_keys),
            "alone": kept(clipped, one_unit),
            **{f"order {number}": kept(clipped, order) for number, order in enumerate(orders)},
        }
    )

    def counts(shards: list[bytes]) -> dict[Any, int]:
        each = count_keys.counts_of_shards(shards)
        return dict(zip(each.elements.tolist(), each.counts.tolist(), strict=True))

    def sums(shards: list[bytes]) -> dict[Any, int]:
        return {text: sum(numbers) for text, numbers in by_text(shards).items()}

    for kind, read in (("elements", counts), ("texts", sums)):
        everybody, without = read(found[f"all {kind}"]), read(found[f"fewer {kind}"])
        assert sum(everybody.values()) == 400
        changes = [everybody[key] - without.get(key, 0) for key in everybody]
        assert set(changes) <= {0, 1, 2}
        assert sum(changes) == 2
    # The text of a record that the limit leaves out has no count.
    assert [*by_text(found["a text"]).values()] == [[1]]
    # The norm of the sketch of a unit is bounded, and its kept records depend on it alone.
    assert clipped.sketch is not None and clipped.sketch.max_squared_norm == 12
    signs = clipped.sketch.signs(clipped.hash_key)
    (batch,) = found["same keys"]
    assert 0 < (signs.project(batch.keys, batch.weights) ** 2).sum() <= 12
    (x,) = universe_elements(["x"], clipped.hash_key)

    def of_the_unit(name: str) -> list[int]:
        keys = np.concatenate([each.keys for each in found[name]])
        return sorted(keys[keys != x].tolist())

    assert 0 < len(of_the_unit("alone")) < 40
    for number in range(len(orders)):
        assert of_the_unit(f"order {number}") == of_the_unit("alone")


@pytest.mark.job
def test_texts_have_their_own_counts_in_any_batches(monkeypatch):
    """Also texts of one hash: none may be listed because another has the same."""
    table = pa.table({"city": [f"city {i % 40}" * (1 + i % 3) for i in range(100)]})
    made = listing(dp.StabilityHistogram())
    sizes = (1, 7, 100)
    batches = {size: [table.slice(start, size) for start in range(0, 100, size)] for size in sizes}
    monkeypatch.setattr(
        keys_module, "universe_elements", lambda texts, _: np.full(len(texts), 5, np.uint64)
    )
    found = outputs(
        {
            **{f"{size} rows": counted_texts(made, batches[size]) for size in sizes},
            "cities": counted_texts(made, OF_CITIES),
        }
    )
    expected = collections.Counter(text.encode() for text in table["city"].to_pylist())
    for size in sizes:
        assert by_text(found[f"{size} rows"]) == {text: [n] for text, n in expected.items()}
    assert by_text(found["cities"]) == {
        **{text.encode(): [count] for text, count in EXPECTED.items()},
        b"\xff\xfe": [11],
        None: [7],
    }


def test_keys_are_listed_by_their_own_counts_above_the_threshold():
    made = listing(dp.StabilityHistogram())
    assert made.histogram is not None
    least = made.histogram.threshold
    texts = [b"a", b"b", b"c", b"\xff", None]
    exact = ElementCounts(
        universe_elements(["a", "b", "c", "d", "e"], made.hash_key),
        np.array([least - 1, least, least + 5, least, least], np.int64),
        pa.array(texts, pa.large_binary()),
    )
    found = dp.release_sparse(made, SparseSummary(counts=exact), Shifted(0))
    assert found.listed_keys() == [("c", least + 5), ("b", least)]
    assert found.histogram is not None and len(found.histogram.counts) == 4
    found = dp.release_sparse(made, SparseSummary(counts=exact), Shifted(1))
    assert dict(found.listed_keys()) == {"a": least, "b": least + 1, "c": least + 6}
    assert made.histogram is not None
    least = made.histogram.threshold
    exact = ElementCounts(
        np.array([9, 9, 9, 3], np.uint64),
        np.array([least, least - 1, least + 2, least], np.int64),
        pa.array([b"a", b"b", b"c", b"d"], pa.large_binary()),
    )
    histogram = dp.release_sparse(made, SparseSummary(counts=exact), Shifted(0)).histogram
    assert histogram is not None and histogram.keys is not None
    assert histogram.elements.tolist() == [3, 9]
    assert histogram.counts.tolist() == [least, 2 * least + 2]
    assert histogram.keys.tolist() in (["d", "a"], ["d", "c"])
