"""Batches of columns to codes and cells: which records are inside the domain, in which order."""

import itertools

import numpy as np
import pyarrow as pa
from hypothesis import given, settings, strategies as st

from beam_dp.domain.attributes import BooleanAttribute, CategoricalAttribute
from beam_dp.domain.files import domain_from_json
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.domain.universe import Domain
from beam_dp.secret.encoding import records
from beam_dp.secret.encoding.records import (
    encode_batch,
    encode_cells,
    encode_column,
    encode_records,
)

shapes = st.lists(st.sampled_from([1, 2, 3, 5, 16, 100, 256, 257, 70_000]), max_size=6)


@given(shapes, st.integers(0, 40), st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=60)
def test_encodes_only_records_inside_the_domain(shape, num_records, random, strays):
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


def test_encodes_long_batches_and_chunked_tables(monkeypatch):
    monkeypatch.setattr(records, "_WINDOW", 7)
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


def test_codes_are_writable_and_input_is_unchanged():
    values = np.array([0, 1, 2, 9], np.uint8)
    array = pa.array(values)
    codes = encode_column(IntegerAttribute("a", 0, 9), array)
    codes[:] = 7
    encode_cells(domain_from_json({"a": 3}), pa.table({"a": array}))
    encode_column(IntegerAttribute("a", 0, 2, other=True), array)
    assert array.to_pylist() == [0, 1, 2, 9]


PLAIN = Domain(
    (
        NumericAttribute("age", (0, 16, 25.5, 65), nullable=True),
        CategoricalAttribute("relationship", ("Husband", "Wife", "Child"), other=True),
        BooleanAttribute("married", nullable=True),
        IntegerAttribute("hours", 0, 99),
    )
)
DOMAIN = PLAIN.with_impossible(
    [
        {"age": [[0, 16]], "married": [True]},
        {"relationship": ["Child", "other"], "married": [True], "hours": [[60, 99]]},
        {"age": [None, [25.5, 65]], "relationship": ["Child"]},
    ]
)
PEOPLE = [
    dict(zip(PLAIN.names, values, strict=True))
    for values in itertools.product(
        [None, -1, 0, 15.9, 16, 25.5, 65, float("nan")],
        ["Husband", "Wife", "Child", "Friend", None],
        [True, False, None],
        [-1, 0, 59, 60, 99],
    )
]


def is_possible(person):
    age, kin, married, hours = person.values()
    is_child = age is not None and 0 <= age < 16
    is_old = age is None or age >= 25.5
    is_kin = kin in ("Husband", "Wife")
    return not (
        (is_child and married)
        or (not is_kin and married and hours >= 60)
        or (is_old and kin == "Child")
    )


def test_drops_exactly_the_impossible_records():
    inside = [p for p in PEOPLE if len(encode_cells(PLAIN, pa.RecordBatch.from_pylist([p])))]
    expected = encode_cells(PLAIN, pa.Table.from_pylist([p for p in inside if is_possible(p)]))
    assert 0 < len(expected) < len(inside) < len(PEOPLE)
    batch = pa.RecordBatch.from_pylist(PEOPLE)
    assert encode_cells(DOMAIN, batch).tolist() == expected.tolist()
    codes, keep = encode_batch(DOMAIN, batch)
    assert DOMAIN.cell_index([column[keep] for column in codes]).tolist() == expected.tolist()
    for as_cells in (False, True):
        for unit in ("record", "hours"):
            encoded = encode_records(DOMAIN, unit, as_cells, batch)
            assert encoded.cell_index(DOMAIN).tolist() == expected.tolist()
            assert encoded.units is None or encoded.units.shape == (2, len(expected))


def test_domain_without_index_drops_impossible_records():
    wide = Domain((*PLAIN.attributes, *(IntegerAttribute(f"a{i}", 0, 9) for i in range(30))))
    wide = Domain(wide.attributes, DOMAIN.impossible)
    batch = pa.Table.from_pylist([{**p, **{f"a{i}": i % 7 for i in range(30)}} for p in PEOPLE])
    encoded = encode_records(wide, "record", False, batch.combine_chunks().to_batches()[0])
    expected = encode_cells(DOMAIN, batch)
    assert PLAIN.cell_index(encoded.codes[:4]).tolist() == expected.tolist()
    assert all(np.array_equal(c, np.full(len(expected), i % 7))
               for i, c in enumerate(encoded.codes[4:]))  # fmt: skip
