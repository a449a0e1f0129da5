"""Synthetic databases: answers of their hypothesis, their rows in random order, any text."""

import itertools
import math
import tracemalloc
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from executed_lines import lines_below
from hypothesis import given, settings, strategies as st
from release_examples import DOMAIN, DRAW, records_bytes, release_of, same_release

import beam_dp as dp
from beam_dp.domain.files import domain_from_json
from beam_dp.domain.impossible import Impossible
from beam_dp.models import potentials as potentials_module
from beam_dp.models.potentials import connected, marginal_weights
from beam_dp.releases.synthetic_database import shards as shards_module
from beam_dp.releases.synthetic_database.records import (
    RECORDS_FORMATS,
    distinct_records,
)
from beam_dp.releases.synthetic_database.shards import parts_of, row_blocks
from beam_dp.secret.encoding.records import encode_batch


def test_answers_come_from_the_hypothesis_with_errors_and_no_impossible_cells():
    domain = domain_from_json({"a": 2, "b": 3, "c": 2})
    table = np.log([[1.0, 2, 3], [4, 5, 5]])
    release = release_of(domain, num_records=40, potentials=[(("a", "b"), table)])
    (answer,) = release.answer(dp.marginals(domain, attributes=["b", "a"]))
    assert answer.attributes == ("a", "b")
    np.testing.assert_allclose(answer.values, 2 * np.exp(table))
    assert (answer.standard_error, answer.bound, answer.failure_probability) == (2.5, 11.0, 0.05)
    single, everything = release.answer(dp.Workload(domain, (("c",), ("a", "b", "c"))))
    np.testing.assert_allclose(single.values, [20, 20])
    assert single.standard_error is None and single.bound is None
    np.testing.assert_allclose(everything.values, np.exp(table)[:, :, None] * [1, 1])
    assert everything.values.sum() == pytest.approx(40)
    domain = domain.with_impossible([{"a": [1], "b": [[1, 2]]}, {"b": [0], "c": [1]}])
    release = release_of(domain, num_records=60, potentials=[(("a",), np.log([1.0, 2.0]))])
    (table,) = release.answer(dp.Workload(domain, (("a", "b", "c"),)))
    weights = np.array([[[1.0, 0], [1, 1], [1, 1]], [[2, 0], [0, 0], [0, 0]]])
    np.testing.assert_allclose(table.values, 60 * weights / weights.sum())


def test_batches_of_any_size_give_the_same_records(monkeypatch):
    monkeypatch.setattr(shards_module, "_BLOCK_ROWS", 30)
    release = release_of(num_records=200)
    places = np.concatenate([block.records for block in release.blocks()])
    assert np.bincount(places).tolist() == release.counts.tolist()
    codes = [column[places] for column in release.codes]
    for batch_size in (1, 7, 1000):
        batches = list(release.records(batch_size))
        sizes = [len(values) for batch in batches for values in batch.values()]
        assert sizes[: 4 * (200 // batch_size)] == [batch_size] * 4 * (200 // batch_size)
        assert sum(sizes) == 4 * 200
        for attribute, column in zip(DOMAIN, codes, strict=True):
            values = [value for batch in batches for value in batch[attribute.name]]
            assert values == attribute.decode(column)
    table = release.record_marginal(("member", "hours"))
    assert table.shape == (2, 305) and table.sum() == 200
    assert table[1, 4] == np.sum((codes[3] == 1) & (codes[1] == 4))
    assert release.record_marginal(()).tolist() == 200


WIDE = dp.Domain(tuple(dp.IntegerAttribute(f"a{i}", 0, (i * 7) % 17 + 1) for i in range(35)))
WIDEST = dp.Domain(tuple(dp.IntegerAttribute(f"a{i}", 0, 2**62 - 1) for i in range(300)))


@pytest.mark.parametrize("domain", [WIDE, WIDEST], ids=["10^29 cells", "5,600 digits"])
def test_release_of_a_huge_domain_round_trips(domain, tmp_path):
    assert not domain.has_index
    first, second = domain.names[:2]
    tables = [((first,), np.zeros(2))] if domain is WIDE else []
    workload = dp.Workload(WIDE, ((first,), (first, second)))
    release = release_of(domain, potentials=tables, workload=workload) if tables else release_of(
        domain, potentials=[], workload=dp.Workload(domain, ((first,),)), errors={}
    )  # fmt: skip
    dp.write_release(release, tmp_path / "out")
    assert same_release(dp.read_release(tmp_path / "out"), release)
    assert len(next(release.records())[domain.names[-1]]) == 50
    with pytest.raises(dp.InputError, match=r"must have at most 2\^28"):
        release.record_marginal(domain.names[:20])
    if tables:
        expected = np.zeros((2, 9), int)
        for a, b, count in zip(*release.codes[:2], release.counts, strict=True):
            expected[a, b] += count
        assert np.array_equal(release.record_marginal((first, second)), expected)
        with pytest.raises(dp.InputError, match=r"must have at most 2\^28 cells"):
            release.answer(dp.Workload(domain, (domain.names[:20],)))


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.integers(0, 40),
    st.integers(0, 99),
    st.booleans(),
)
@settings(max_examples=100)
def test_distinct_records_match_the_sorted_rows(sizes, num_records, seed, wide):
    """Each size of 2^40 needs a whole word."""
    sizes = [size * 2**40 for size in sizes] if wide else sizes
    domain = dp.Domain(tuple(dp.IntegerAttribute(f"a{i}", 0, n - 1) for i, n in enumerate(sizes)))
    rng = np.random.default_rng(seed)
    columns = [rng.choice([0, n // 2, n - 1], num_records) for n in sizes]
    codes, counts = distinct_records(domain, columns)
    rows = Counter(zip(*(column.tolist() for column in columns), strict=True))
    assert list(zip(*(column.tolist() for column in codes), strict=True)) == sorted(rows)
    assert counts.tolist() == [rows[row] for row in sorted(rows)]
    if num_records:
        release_of(domain, codes=codes, counts=counts, num_records=num_records, potentials=[])


TITANIC = dp.Domain(
    (
        dp.CategoricalAttribute("Survived", ("no", "yes")),
        dp.CategoricalAttribute("Pclass", ("1", "2", "3")),
        dp.NumericAttribute("Fare", (0, 8, 15, 31, 248, 512)),
    )
)


def titanic(draw_id: str = DRAW) -> dp.SyntheticDatabase:
    """900 records; the first 540 by code have died."""
    codes = [each.ravel() for each in np.indices(TITANIC.shape)]
    counts = np.where(codes[0] == 0, 36, 24)
    return release_of(
        TITANIC, num_records=900, codes=codes, counts=counts, potentials=[],
        draw_id=draw_id, within_bins="uniform",
    )  # fmt: skip


def test_row_order_follows_the_draw_and_not_the_input():
    tables = [titanic(draw_id=draw_id).to_arrow() for draw_id in (DRAW, "f" * 32)]
    assert not tables[0].equals(tables[1])
    assert records_bytes(titanic()) == records_bytes(titanic())
    # The input is sorted; the first rows of its copy must not be.
    table = pa.table({"Survived": ["no"] * 540 + ["yes"] * 360, "Pclass": ["1", "2", "3"] * 300})
    domain = TITANIC.restrict(("Survived", "Pclass"))
    promise = dp.Guarantee(20.0, 1e-9, "replace_one", "record", 1)
    workload = dp.marginals(domain, ways=2)
    release = dp.release(table, domain, workload, promise, mechanism=dp.Gaussian(), num_records=900)
    first = release.to_arrow()["Survived"].to_pylist()[:300]
    # Seven standard deviations: a false alarm has a chance below 1e-10.
    assert abs(first.count("yes") - 120) < 7 * math.sqrt(300 * 0.4 * 0.6)


def blocks_of(counts: Any, draw_id: str, num_parts: int = 1) -> list[Any]:
    parts = parts_of(counts, draw_id, num_parts)
    return [block for part in parts for block in row_blocks(part, draw_id, {})]


@pytest.mark.parametrize("block_rows", [pytest.param(1, marks=pytest.mark.part), 2, 100])
def test_all_row_orders_are_equally_likely(monkeypatch, block_rows):
    """Each of 12 orders of four rows occurs 500 times, within five standard deviations."""
    monkeypatch.setattr(shards_module, "_BLOCK_ROWS", block_rows)
    counts = np.array([2, 1, 1])
    seen = Counter(
        tuple(np.concatenate([block.records for block in blocks_of(counts, f"{draw:032x}")]))
        for draw in range(6000)
    )
    assert len(seen) == 12 and all(abs(each - 500) < 5 * math.sqrt(500) for each in seen.values())


@pytest.mark.parametrize("block_rows", [10, 1000])
def test_blocks_are_small_and_together_contain_all_rows(monkeypatch, block_rows):
    monkeypatch.setattr(shards_module, "_BLOCK_ROWS", block_rows)
    counts = np.array([1, 5000, 2, 17, 800])
    blocks = blocks_of(counts, DRAW)
    assert all(len(block.which) <= block_rows for block in blocks)
    records = np.concatenate([block.records for block in blocks])
    assert np.bincount(records).tolist() == counts.tolist()
    for num_parts in (2, 8):
        inside = [block.records for block in blocks_of(counts, DRAW, num_parts)]
        assert np.array_equal(np.concatenate(inside)[: len(records)], records) or block_rows == 1000
        assert np.bincount(np.concatenate(inside)).tolist() == counts.tolist()


def brute_force(shape, potentials, wanted):
    """Computes the marginals from one weight per cell."""
    weights = np.zeros(shape)
    for cell in itertools.product(*map(range, shape)):
        weights[cell] = sum(table[tuple(cell[a] for a in axes)] for axes, table in potentials)
    weights = np.exp(weights - weights.max())
    weights /= weights.sum()
    every = range(len(shape))
    return [weights.sum(axis=tuple(a for a in every if a not in axes)) for axes in wanted]


axes_sets = st.lists(st.integers(0, 4), unique=True, max_size=4).map(lambda a: tuple(sorted(a)))


@given(
    st.lists(st.integers(1, 4), min_size=5, max_size=5),
    st.lists(axes_sets, max_size=6),
    st.lists(axes_sets, min_size=1, max_size=4),
    st.integers(0, 1000),
    st.sampled_from([1, 3, 8, 2**20]),
    st.booleans(),
)
@settings(max_examples=40)
def test_marginals_match_the_dense_distribution(shape, sets, wanted, seed, slab_cells, tree):
    rng = np.random.default_rng(seed)
    potentials = [(axes, 5 * rng.normal(size=[shape[a] for a in axes])) for axes in sets]
    before = [table.copy() for _, table in potentials]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(potentials_module, "_SLAB_CELLS", slab_cells)
        if tree:
            patch.setattr(potentials_module, "_DENSE_CELLS", 0)
            patch.setattr(potentials_module, "_TREE_GAIN", 0)
        actual = marginal_weights(shape, potentials, wanted)
    for table, expected in zip(actual, brute_force(shape, potentials, wanted), strict=True):
        assert table.shape == expected.shape
        np.testing.assert_allclose(table, expected, rtol=1e-9, atol=1e-300)
    assert all(np.array_equal(a, b) for a, (_, b) in zip(before, potentials, strict=True))


@pytest.mark.parametrize("slab_cells", [1, 2**20])
def test_huge_and_tiny_logarithms_do_not_overflow(monkeypatch, slab_cells):
    monkeypatch.setattr(potentials_module, "_SLAB_CELLS", slab_cells)
    table = np.array([[-1e300, -1e5], [1e5, 1e5 - 1]])
    (result,) = marginal_weights((2, 2), [((0, 1), table)], [(0, 1)])
    share = 1 / (1 + math.exp(-1))
    np.testing.assert_allclose(result, [[0, 0], [share, 1 - share]])


def test_any_number_of_cells_may_be_unjoined_but_not_joined():
    assert connected([(0, 1), (3,), (4, 5), (), (1, 4)]) == [(0, 1, 4, 5), (3,)]
    shape = (2**40, 2, 2**40, 2)
    log = np.log([1.0, 3.0])
    potentials = [((1,), log), ((3,), log)]
    (table,) = marginal_weights(shape, potentials, [(1, 3)])
    np.testing.assert_allclose(table, np.outer([0.25, 0.75], [0.25, 0.75]))
    shape = (2**15, 2**14, 2)
    potentials = [((0, 1), np.broadcast_to(np.float64(0), shape[:2])), ((2,), np.zeros(2))]
    (table,) = marginal_weights(shape, potentials, [(2,)])
    assert table.tolist() == [0.5, 0.5]
    with pytest.raises(dp.InputError, match=r"536,870,912' is not valid: must be at most 2\^28"):
        marginal_weights(shape, potentials, [(0,)])
    sets = list(itertools.combinations(range(15), 2))
    potentials = [(axes, np.zeros([ADULT[axis] for axis in axes])) for axes in sets]
    with pytest.raises(dp.InputError, match=r"'?29,\d.*|'10\^13.*") as caught:
        marginal_weights(ADULT, potentials, [(0, 1)])
    assert "must be at most 2^28, the cells of the junction tree" in str(caught.value)


@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("slab_cells", [1, 2**20])
def test_impossible_cells_have_no_weight_in_any_slabs(monkeypatch, tree, slab_cells):
    monkeypatch.setattr(potentials_module, "_SLAB_CELLS", slab_cells)
    if tree:
        monkeypatch.setattr(potentials_module, "_DENSE_CELLS", 0)
        monkeypatch.setattr(potentials_module, "_TREE_GAIN", 0)
    rng = np.random.default_rng(0)
    shape = (3, 2, 4)
    potentials = [((0,), rng.normal(size=3)), ((1, 2), rng.normal(size=(2, 4)))]
    # The first one joins attributes that no potential joins; the second empties whole slabs.
    impossible = [
        Impossible((0, 1), (((0, 1), (2, 3)), ((1, 2),))),
        Impossible((1, 2), (((0, 1),), ((0, 3),))),
    ]
    weights = np.exp(potentials[0][1][:, None, None] + potentials[1][1])
    weights[[0, 2], 1] = 0
    weights[:, 0, :3] = 0
    weights /= weights.sum()
    first, both = marginal_weights(shape, potentials, [(0,), (0, 1, 2)], impossible)
    np.testing.assert_allclose(first, weights.sum(axis=(1, 2)))
    np.testing.assert_allclose(both, weights)
    nothing = [Impossible((0, 1), (((0, 3),), ((0, 2),)))]
    with pytest.raises(dp.InputError, match="must leave a cell"):
        marginal_weights(shape, potentials, [(0,)], nothing)


ADULT = (9, 8, 9, 16, 16, 7, 15, 6, 5, 2, 7, 6, 8, 42, 2)  # 10^13 cells


@pytest.mark.part
def test_all_three_way_marginals_of_fifteen_columns_take_little_work_and_memory():
    """A release over a tree: its own tables and all 455 marginals, also across the tree."""
    rng = np.random.default_rng(1)
    sets = [(i, i + 1, i + 2) for i in range(13)] + [(0, 2), (3, 5)]
    potentials = [(axes, rng.normal(size=[ADULT[axis] for axis in axes])) for axes in sets]
    wanted = list(itertools.combinations(range(15), 3))
    tracemalloc.start()
    with lines_below(8_000_000):
        found = dict(zip(wanted, marginal_weights(ADULT, potentials, wanted), strict=True))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**27
    for (a, b, c), table in found.items():
        assert table.shape == (ADULT[a], ADULT[b], ADULT[c])
        assert table.sum() == pytest.approx(1)
        np.testing.assert_allclose(table.sum(axis=2), found[0, a, b].sum(axis=0) if a else
                                   found[a, b, 14].sum(axis=2), rtol=1e-8)  # fmt: skip
    # The middle of the chain follows from the tables around it.
    left, middle, right = found[2, 3, 4], found[3, 4, 5], found[4, 5, 6]
    joint = left[..., None] * (middle / middle.sum(axis=2, keepdims=True))[None]
    (four,) = marginal_weights(ADULT, potentials, [(2, 3, 4, 5)])
    np.testing.assert_allclose(four, joint, rtol=1e-8)
    np.testing.assert_allclose(right.sum(axis=2), middle.sum(axis=0), rtol=1e-8)


CONTROLS = [chr(code) for code in range(1, 32) if chr(code) not in "\n\r"]
TEXTS = (
    *CONTROLS, *(f"a{each}b" for each in CONTROLS), "", " ", "a ", '"', '""', 'a"b', "a,b", ";",
    "NA", "null", "nan", "true", "0", "007", "1e5", "=1+1", "'", "\\", "\\N", "#", "\x7f", "\x85",
    "\xa0", "\u2028", "\ufeffa", "\u200b", "e\u0301", "\xe9", "\U0001f600", "x" * 5000,
)  # fmt: skip
TEXT_DOMAIN = dp.Domain(
    (
        dp.CategoricalAttribute("x", TEXTS, nullable=True),
        dp.CategoricalAttribute('in/out, "of" bed', ("a", "b"), other=True),
    )
)


@pytest.mark.parametrize("records_format", RECORDS_FORMATS)
def test_released_records_are_input_of_the_same_domain(tmp_path, records_format):
    """Names that Avro does not allow are mapped there, and mapped back by the reader."""
    release = release_of(
        TEXT_DOMAIN, potentials=[], records_format=records_format, num_records=2000
    )
    dp.write_release(release, tmp_path / "out")
    source = dp.ReadRecords(str(tmp_path / "out" / f"records-*.{records_format}"))
    for attribute in TEXT_DOMAIN:
        source.check_column("domain", attribute.name, attribute)
    batches = source.batches(list(TEXT_DOMAIN.names), TEXT_DOMAIN)
    found = [encode_batch(TEXT_DOMAIN, batch)[0] for batch in batches]
    expected = encode_batch(TEXT_DOMAIN, release.to_arrow().to_batches()[0])[0]
    for axis in range(2):
        assert np.array_equal(np.concatenate([each[axis] for each in found]), expected[axis])
