"""Records that match an impossible combination are outside the domain."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from beam_dp.domain.listed import BooleanAttribute, CategoricalAttribute
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.domain.universe import Domain
from beam_dp.encoding.columns import encode_batch, encode_cells
from beam_dp.encoding.records import encode_records

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


@pytest.mark.slow
def test_they_are_dropped_and_no_others():
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


def test_a_domain_without_an_index_drops_them_too():
    wide = Domain((*PLAIN.attributes, *(IntegerAttribute(f"a{i}", 0, 9) for i in range(30))))
    wide = Domain(wide.attributes, DOMAIN.impossible)
    batch = pa.Table.from_pylist([{**p, **{f"a{i}": i % 7 for i in range(30)}} for p in PEOPLE])
    encoded = encode_records(wide, "record", False, batch.combine_chunks().to_batches()[0])
    expected = encode_cells(DOMAIN, batch)
    assert PLAIN.cell_index(encoded.codes[:4]).tolist() == expected.tolist()
    assert all(np.array_equal(c, np.full(len(expected), i % 7))
               for i, c in enumerate(encoded.codes[4:]))  # fmt: skip
