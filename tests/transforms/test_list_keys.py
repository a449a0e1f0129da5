"""Releases that list their keys: each text has its own count, and only released counts show."""

from __future__ import annotations

import collections
from typing import Any

import apache_beam as beam
import fakes
import numpy as np
import pyarrow as pa
import pytest
from sketch_laws import Shifted
from test_release_projection import HUGE, release

import beam_dp.encoding.keys as keys_module
from beam_dp.hashing.keys import universe_elements
from beam_dp.mechanisms.sketches.mechanisms import HybridSketch, StabilityHistogram
from beam_dp.mechanisms.sketches.plan import SparsePlan, SparseSummary, release_sparse
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.summaries.element_counts import ElementCounts
from beam_dp.transforms import KeyColumns, ReleaseProjection
from beam_dp.transforms.counting.count_keys import CountListedKeys, listed_counts
from beam_dp.transforms.counting.limit_contributions import LimitKeys
from beam_dp.transforms.counting.summarise import KEYS, TEXTS, EncodeKeys

LISTED = KeyColumns("city", list_keys=True)
LONG = "Llanfairpwllgwyngyll" * 12 + "ABC"  # 243 bytes
CITIES: list[Any] = ["Bern", "Bern ", "Zürich", LONG, LONG[:-1] + "D", LONG + "x" * 14, "7", "7.0"]
CITIES += [7, b"\xff\xfe", "", None, 2.5]
RECORDS = [
    {"city": city, "person": f"{number}/{i}"}
    for number, city in enumerate(CITIES)
    for i in range(2 + number)
]
# The long one has 257 bytes; 7, "7" and "7.0" are one key; a null and a fraction are none.
EXPECTED = {"Bern": 2, "Bern ": 3, "Zürich": 4, LONG: 5, LONG[:-1] + "D": 6, "7": 8 + 9 + 10}
EXPECTED |= {"": 12}


def plan(mechanism: Any, unit: str = "record", k: int = 1, columns: Any = LISTED) -> SparsePlan:
    promise = Guarantee(HUGE, 1e-9, "add_or_remove_one", unit, k)
    made: SparsePlan = mechanism.plan(promise, max_sparsity=10)
    return ReleaseProjection(made, columns).plan


COUNTED: list[ElementCounts] = []  # of this process, in which FnApiRunner runs everything


def counted(records: Any, made: SparsePlan) -> dict[bytes | None, list[int]]:
    """The exact counts of each text, with no noise."""
    COUNTED.clear()
    with fakes.pipeline() as pipeline:
        encode = EncodeKeys(LISTED, 1, made.hash_key, made.guarantee.privacy_unit)
        encoded = pipeline | beam.Create(records) | encode
        limited = encoded[KEYS] | LimitKeys(made)
        shards = (limited, encoded[TEXTS]) | CountListedKeys()
        _ = shards | beam.combiners.ToList() | beam.Map(_keep)
    (found,) = COUNTED
    assert found.texts is not None
    by_text = collections.defaultdict(list)
    for text, count in zip(found.texts.to_pylist(), found.counts.tolist(), strict=True):
        by_text[text].append(count)
    return dict(by_text)


def _keep(shards: list[bytes]) -> None:
    COUNTED.append(listed_counts(shards))


@pytest.mark.job
@pytest.mark.parametrize("mechanism", [StabilityHistogram(), HybridSketch(2**10)])
def test_lists_each_key_with_its_own_count(tmp_path, mechanism):
    found = release(RECORDS, plan(mechanism), tmp_path, LISTED)
    listed = found.listed_keys()
    assert dict(listed) == EXPECTED
    assert [count for _, count in listed] == sorted(EXPECTED.values(), reverse=True)
    # Keys that cannot be listed have a count.
    assert found.histogram is not None and len(found.histogram.counts) == len(EXPECTED) + 2


@pytest.mark.job
@pytest.mark.parametrize("size", [1, 7, 500])
def test_counts_of_texts_do_not_depend_on_batches(size):
    table = pa.table({"city": [f"city {i % 40}" * (1 + i % 3) for i in range(500)]})
    batches = [table.slice(start, size) for start in range(0, 500, size)]
    expected = collections.Counter(text.encode() for text in table["city"].to_pylist())
    assert counted(batches, plan(StabilityHistogram())) == {
        text: [count] for text, count in expected.items()
    }


@pytest.mark.job
def test_adding_a_unit_changes_only_the_counts_of_its_k_kept_records():
    made = plan(StabilityHistogram(), "person", 2)
    records = [{"city": f"city {i % 40} of a long name", "person": i // 3} for i in range(600)]
    everybody, without = counted(records, made), counted(records[3:], made)
    assert sum(map(sum, everybody.values())) == 400
    changes = [sum(everybody[text]) - sum(without.get(text, [0])) for text in everybody]
    assert set(changes) <= {0, 1, 2}
    assert sum(changes) == 2


@pytest.mark.job
def test_texts_that_share_an_element_have_their_own_counts(monkeypatch):
    """A text must not be listed because another one has the same hash."""
    monkeypatch.setattr(
        keys_module, "universe_elements", lambda texts, _: np.full(len(texts), 5, np.uint64)
    )
    assert counted(RECORDS, plan(StabilityHistogram())) == {
        **{text.encode(): [count] for text, count in EXPECTED.items()},
        b"\xff\xfe": [11],
        None: [7],
    }


@pytest.mark.job
def test_text_of_a_record_that_the_limit_leaves_out_has_no_count():
    made = plan(StabilityHistogram(), "person", 1)
    records = [{"city": f"city {i}", "person": "one"} for i in range(50)]
    found = counted(records, made)
    assert list(found.values()) == [[1]]


def test_texts_below_the_threshold_are_not_listed():
    made = plan(StabilityHistogram())
    assert made.histogram is not None
    least = made.histogram.threshold
    texts = [b"a", b"b", b"c", b"\xff", None]
    exact = ElementCounts(
        universe_elements(["a", "b", "c", "d", "e"], made.hash_key),
        np.array([least - 1, least, least + 5, least, least], np.int64),
        pa.array(texts, pa.large_binary()),
    )
    found = release_sparse(made, SparseSummary(counts=exact), Shifted(0))
    assert found.listed_keys() == [("c", least + 5), ("b", least)]
    assert found.histogram is not None and len(found.histogram.counts) == 4
    found = release_sparse(made, SparseSummary(counts=exact), Shifted(1))
    assert dict(found.listed_keys()) == {"a": least, "b": least + 1, "c": least + 6}


def test_released_texts_with_the_same_element_share_one_released_count():
    made = plan(StabilityHistogram())
    assert made.histogram is not None
    least = made.histogram.threshold
    exact = ElementCounts(
        np.array([9, 9, 9, 3], np.uint64),
        np.array([least, least - 1, least + 2, least], np.int64),
        pa.array([b"a", b"b", b"c", b"d"], pa.large_binary()),
    )
    histogram = release_sparse(made, SparseSummary(counts=exact), Shifted(0)).histogram
    assert histogram is not None and histogram.keys is not None
    assert histogram.elements.tolist() == [3, 9]
    assert histogram.counts.tolist() == [least, 2 * least + 2]
    assert histogram.keys.tolist() in (["d", "a"], ["d", "c"])


@pytest.mark.job
def test_empty_input_gives_an_empty_list(tmp_path):
    assert release([], plan(StabilityHistogram()), tmp_path, LISTED).listed_keys() == []


@pytest.mark.job
def test_retried_bundles_list_each_key_once(tmp_path):
    found = release(RECORDS, plan(StabilityHistogram()), tmp_path, LISTED, bundle_repeat=2)
    assert dict(found.listed_keys()) == EXPECTED


def test_card_says_that_keys_are_listed_only_if_they_are():
    assert plan(StabilityHistogram()).public["key"]["list_keys"] is True
    unlisted = plan(StabilityHistogram(), columns=KeyColumns("city"))
    assert "list_keys" not in unlisted.public["key"]
