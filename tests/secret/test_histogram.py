"""Tables of counts, and accumulators for every way to split, order and send: by brute force."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tiny import domain_of

import beam_dp.secret.summaries.histogram as histogram
import beam_dp.secret.summaries.shards as shards
from beam_dp.domain.universe import Domain
from beam_dp.secret.encoding.records import EncodedBatch
from beam_dp.secret.summaries.histogram import (
    Histogram,
    HistogramAccumulator,
    Marginals,
    MarginalsAccumulator,
    merge_tables,
)


def histogram_of(*sizes: int) -> Histogram:
    domain = domain_of(*sizes)
    return Histogram(domain, np.random.default_rng(0).integers(0, 9, domain.num_cells))


@pytest.mark.parametrize("sizes", [(2, 3, 4, 5), (1,), (1, 20, 1), (17, 2, 33), (2,) * 8])
def test_every_marginal_equals_a_sum_over_axes(sizes):
    histogram = histogram_of(*sizes)
    names, counts = histogram.domain.names, histogram.counts.reshape(sizes)
    wanted = [s for k in range(len(sizes) + 1) for s in itertools.combinations(names, k)]
    marginals = histogram.marginals(wanted)
    assert set(marginals.tables) == set(wanted)
    for attributes in wanted:
        dropped = tuple(axis for axis, name in enumerate(names) if name not in attributes)
        np.testing.assert_array_equal(marginals.tables[attributes], counts.sum(axis=dropped))


def test_marginal_has_axes_in_any_given_order():
    """All orders of up to four axes of unequal sizes: a swap of two would be its own inverse."""
    histogram = histogram_of(2, 3, 4, 5)
    counts = histogram.counts.reshape(2, 3, 4, 5)
    held = histogram.marginals([("a0", "a1", "a2", "a3"), ("a0", "a2", "a3")])
    orders = [o for k in range(5) for o in itertools.permutations(range(4), k)]
    for order in orders:
        names = [f"a{axis}" for axis in order]
        expected = np.einsum(counts, range(4), list(order))
        np.testing.assert_array_equal(histogram.marginal(names), expected)
        np.testing.assert_array_equal(held.marginal(names), expected)
    assert len(orders) == 65


def test_repr_shows_no_counts():
    assert repr(histogram_of(2, 3)) == "Histogram(num_cells=6)"
    assert "9" not in repr(Marginals(domain_of(2), {("a0",): np.full(2, 9)}))


def test_rejects_counts_of_another_shape_or_type():
    with pytest.raises(ValueError, match="int64"):
        Histogram(domain_of(4), np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="int64"):
        Histogram(domain_of(4), np.zeros(4))


@pytest.mark.parametrize("max_cells", [1, 64, 2**16])
def test_merged_tables_of_bounded_size_contain_every_table(max_cells):
    domain = domain_of(2, 5, 3, 70000, 4, 2, 6)
    tables = list(itertools.combinations(domain.names, 2))
    merged = merge_tables(domain, tables, max_cells)
    assert len(merged) <= len(tables)
    for table in tables:
        assert any(set(table) <= set(union) for union in merged)
    for union in merged:
        cells = math.prod(domain.restrict(union).shape)
        assert cells <= max_cells or union in tables


def test_rejects_tables_with_wrong_attribute_order_or_shape():
    with pytest.raises(ValueError, match="order"):
        Marginals(domain_of(2, 3), {("a1", "a0"): np.zeros((3, 2), np.int64)})
    with pytest.raises(ValueError, match="axis"):
        Marginals(domain_of(2, 3), {("a0", "a1"): np.zeros((3, 2), np.int64)})


# Every accumulator against brute force, for every way to split, order and send.


SMALL = domain_of(3, 2, 4)
FOUR = domain_of(3, 2, 4, 5)
WIDE = domain_of(2**40, 3, 5, 2**30, 2)  # has no index
PAIRS = list(itertools.combinations(FOUR.names, 2))
COUNTED = {
    "all cells": {"_TABLE_NS": 1e9},
    "merged": {"_MERGED_CELLS": 24, "_CELL_NS": 1e9},
    "apart": {"_MERGED_CELLS": 0, "_COUNTED_CELLS": 0},
}


def marginals_by(
    way: str, domain: Domain, tables: list[tuple[str, ...]], counted: list[int], sent: int
) -> MarginalsAccumulator:
    """An accumulator that counts tables of such sizes, and sends so many cells."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in COUNTED[way].items():
            patch.setattr(histogram, name, value)
        made = MarginalsAccumulator(domain, tables)
    assert [counts.num_cells for counts in made.create()[0]] == counted
    assert made.num_cells == sent
    return made


NESTED = [("a0", "a1"), ("a1", "a2"), ("a0",), ()]
ACCUMULATORS = {
    "histogram": HistogramAccumulator(SMALL),
    "one cell": HistogramAccumulator(domain_of(1)),
    "two blocks": HistogramAccumulator(domain_of(2, 2**17)),
    "all cells, sent as tables": marginals_by("all cells", SMALL, NESTED, [24], 18),
    "all cells, sent as they are": marginals_by(
        "all cells", SMALL, PAIRS[:2] + PAIRS[3:4] + [("a0", "a2", "a1")], [24], 24
    ),
    "merged, sent as tables": marginals_by(
        "merged", FOUR, [("a0", "a1"), ("a1", "a2"), ("a0", "a3")], [24, 15], 29
    ),
    "merged, sent as they are": marginals_by("merged", FOUR, PAIRS, [24, 15, 10, 20], 69),
    "apart": marginals_by("apart", FOUR, PAIRS[:3], [6, 12, 15], 33),
    "two blocks of a table": marginals_by(
        "all cells", domain_of(2, 2**17, 3), [("a0", "a1"), ("a2",)], [6 * 2**17], 2**18 + 3
    ),
    "without index": marginals_by(
        "merged", WIDE, [("a1", "a2"), ("a4",), ("a2", "a4")], [15, 10], 25
    ),
    "one total": marginals_by("apart", SMALL, [()], [1], 1),
    "no marginal": MarginalsAccumulator(SMALL, []),
}
# Each as soon as there is a record, for patched limits.
KEPT = {
    "array": {"_SMALL_CELLS": 2**22},
    "array, later": {"_SMALL_CELLS": 0, "_CELLS_A_RECORD": 1},
    "sorted": {"_SMALL_CELLS": 0, "_ARRAY_CELLS": 0},
}


def random_codes(domain: Domain, num_records: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, min(size, 2**31), num_records) for size in domain.shape]


def batches_of(domain: Domain, codes: list[np.ndarray], cuts: list[int]) -> list[EncodedBatch]:
    edges = [0, *sorted(cuts), len(codes[0])]
    found = []
    for i, (start, stop) in enumerate(itertools.pairwise(edges)):
        part = [column[start:stop] for column in codes]
        as_cells = domain.has_index and i % 2
        found.append(
            EncodedBatch(cells=domain.cell_index(part)) if as_cells else EncodedBatch(codes=part)
        )
    return found


def brute_force(domain: Domain, codes: list[np.ndarray], names: tuple[str, ...]) -> np.ndarray:
    axes = domain.axes(names)
    table = np.zeros([domain.shape[axis] for axis in axes], np.int64)
    for record in zip(*(codes[axis].tolist() for axis in axes), strict=True):
        table[record] += 1
    if not names:
        table[...] = len(codes[0])
    return table


def tables_of(summary: Histogram | Marginals) -> dict[tuple[str, ...], np.ndarray]:
    if isinstance(summary, Histogram):
        return {summary.domain.names: summary.counts.reshape(summary.domain.shape)}
    return dict(summary.tables)


@pytest.mark.parametrize("name", ACCUMULATORS)
@pytest.mark.parametrize("kept", KEPT)
@settings(max_examples=5)
@given(data=st.data())
def test_split_order_and_shards_do_not_change_counts(name, kept, data):
    accumulator: Any = ACCUMULATORS[name]
    domain = accumulator.domain
    n = data.draw(st.integers(0, 60))
    codes = random_codes(domain, n, data.draw(st.integers(0, 99)))
    cuts = data.draw(st.lists(st.integers(0, n), max_size=6))
    batches = data.draw(st.permutations(batches_of(domain, codes, cuts)))
    with pytest.MonkeyPatch.context() as patch:
        for limit, value in {**KEPT[kept], "_PENDING_RECORDS": 8, "_MAX_NARROW": 30}.items():
            patch.setattr(shards, limit, value)
        patch.setattr(histogram, "_CHUNK_RECORDS", 7)
        states = [accumulator.create()]
        for batch in batches:
            if data.draw(st.booleans()):
                states.append(accumulator.create())
            states[-1] = accumulator.add_batch(states[-1], batch)
        sent = [list(accumulator.to_shards(state)) for state in states]

    pieces = data.draw(st.permutations([piece for shard in sent for piece in shard]))
    received = tables_of(accumulator.from_shards(pieces))
    by_block = {block: [s for b, s in pieces if b == block] for block, _ in pieces}
    tree = [(b, shards.merge_shards(shards_of)) for b, shards_of in by_block.items()]
    combined = tables_of(accumulator.from_shards(tree))

    for names, table in received.items():
        expected = brute_force(domain, codes, names)
        np.testing.assert_array_equal(table, expected)
        np.testing.assert_array_equal(combined[names], expected)
        assert table.dtype == np.int64
    assert received.keys() == combined.keys()


@pytest.mark.parametrize("name", ACCUMULATORS)
def test_no_batches_give_zeros_of_the_same_shape(name):
    accumulator: Any = ACCUMULATORS[name]
    empty = [
        accumulator.from_shards(accumulator.to_shards(accumulator.create())),
        accumulator.from_shards([]),
    ]
    full = accumulator.add_batch(
        accumulator.create(), EncodedBatch(codes=random_codes(accumulator.domain, 5, 0))
    )
    found = tables_of(accumulator.from_shards(accumulator.to_shards(full)))
    shape = {names: table.shape for names, table in found.items()}
    for summary in empty:
        tables = tables_of(summary)
        assert {names: table.shape for names, table in tables.items()} == shape
        assert not any(table.any() for table in tables.values())
