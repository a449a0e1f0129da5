"""Batches of columns to codes and cells: which records are inside, in which order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from beam_dp.domain.files import domain_from_json
from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.encoding import columns
from beam_dp.encoding.columns import encode_batch, encode_cells, encode_column
from beam_dp.errors import InputError

shapes = st.lists(st.sampled_from([1, 2, 3, 5, 16, 100, 256, 257, 70_000]), max_size=6)


@pytest.mark.slow
@given(shapes, st.integers(0, 40), st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=200)
def test_cells_are_those_of_the_records_inside(shape, num_records, random, strays):
    domain = Domain(tuple(IntegerAttribute(f"c{i}", 5, s + 4) for i, s in enumerate(shape)))
    if not domain.has_index:
        return
    data = {
        name: [random.randint(5, size + 4 + strays) for _ in range(num_records)]
        for name, size in zip(domain.names, domain.shape, strict=True)
    }
    batch = pa.table({"unused": [0] * num_records, **data})
    expected = []
    for record in range(num_records):
        codes = [data[name][record] - 5 for name in domain.names]
        if all(code < size for code, size in zip(codes, shape, strict=True)):
            cell = 0
            for code, size in zip(codes, shape, strict=True):
                cell = cell * size + code
            expected.append(cell)
    cells = encode_cells(domain, batch)
    assert cells.tolist() == expected
    assert cells.dtype == (np.int32 if domain.num_cells <= 2**31 else np.int64)
    codes, keep = encode_batch(domain, batch)
    kept = [column if keep is None else column[keep] for column in codes]
    assert (keep is None) == (len(expected) == num_records)
    if domain.attributes:
        assert domain.cell_index(kept).tolist() == expected


def test_batches_longer_than_a_window_and_chunked_tables(monkeypatch):
    monkeypatch.setattr(columns, "_WINDOW", 7)
    rng = np.random.default_rng(0)
    domain = domain_from_json({"a": 3, "b": 4, "c": 300})
    data = [rng.integers(0, size, 100) for size in (3, 5, 301)]
    table = pa.table(
        {
            "a": data[0],
            "b": pa.array(data[1].astype(str)).dictionary_encode(),
            "c": data[2].astype(float),
        }
    )
    inside = (data[1] < 4) & (data[2] < 300)
    expected = np.ravel_multi_index([d[inside] for d in data], domain.shape).tolist()
    assert encode_cells(domain, table).tolist() == expected
    parts = pa.concat_tables([table.slice(0, 30), table.slice(30, 0), table.slice(30)])
    assert encode_cells(domain, parts).tolist() == expected
    first = encode_cells(domain, parts.to_batches()[0])
    assert first.tolist() == expected[: inside[:30].sum()]


def test_a_missing_column_counts_as_null_and_a_repeated_one_is_read_once():
    nullable = Domain((IntegerAttribute("a", 0, 1, nullable=True), IntegerAttribute("b", 0, 1)))
    assert encode_cells(nullable, pa.table({"b": [0, 1]})).tolist() == [4, 5]
    assert encode_cells(nullable, pa.table({"a": [0, 1]})).tolist() == []
    repeated = pa.Table.from_arrays([pa.array([1]), pa.array([0])], names=["b", "b"])
    assert encode_cells(nullable, repeated).tolist() == [5]


def test_the_source_is_not_written_to_and_the_result_may_be():
    values = np.array([0, 1, 2, 9], np.uint8)
    array = pa.array(values)
    codes = encode_column(IntegerAttribute("a", 0, 9), array)
    codes[:] = 7
    encode_cells(domain_from_json({"a": 3}), pa.table({"a": array}))
    encode_column(IntegerAttribute("a", 0, 2, other=True), array)
    assert array.to_pylist() == [0, 1, 2, 9]


def test_a_domain_without_an_index_is_refused_but_its_columns_are_coded():
    wide = domain_from_json({f"a{i}": 2 for i in range(63)})
    batch = pa.table({name: [1] for name in wide.names})
    with pytest.raises(InputError, match=r"at most 2\^62 cells"):
        encode_cells(wide, batch)
    codes, keep = encode_batch(wide, batch)
    assert len(codes) == 63 and keep is None
