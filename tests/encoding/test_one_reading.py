"""A value has one reading: where values are found, counted, hashed and limited, in every type."""

from __future__ import annotations

import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from beam_dp.domain.attributes import CategoricalAttribute
from beam_dp.domain.universe import Domain
from beam_dp.encoding.check import DomainCheck
from beam_dp.encoding.keys import key_elements
from beam_dp.encoding.open_values import OpenColumns, encode_values
from beam_dp.encoding.records import encode_column
from beam_dp.encoding.units import unit_fingerprints
from beam_dp.hashing.keys import HashKey

HASH = HashKey(4, np.arange(10, dtype=np.uint64), bytes(16))
D = decimal.Decimal
# Values of one type, and the text of each.
COLUMNS: dict[pa.DataType, dict[Any, str]] = {
    **{kind: {-128: "-128", 0: "0", 127: "127"} for kind in (pa.int8(), pa.int16(), pa.int32())},
    pa.int64(): {-(2**63): str(-(2**63)), 2**53 + 1: str(2**53 + 1), 2**63 - 1: str(2**63 - 1)},
    **{kind: {0: "0", 255: "255"} for kind in (pa.uint8(), pa.uint16(), pa.uint32())},
    pa.uint64(): {7: "7", 2**63: str(2**63), 2**63 + 1: str(2**63 + 1), 2**64 - 1: str(2**64 - 1)},
    pa.float16(): {np.float16(0.1): "0.1", np.float16(7): "7", np.float16(-2.5): "-2.5"},
    pa.float32(): {0.7: "0.7", 7.0: "7", 2.0**63: str(2**63), -0.0: "0"},
    pa.float64(): {
        0.7: "0.7", 3.5: "3.5", 7.0: "7", 2.0**53: str(2**53), 2.0**63: str(2**63),
        -(2.0**63): str(-(2**63)), 1e19: "1" + "0" * 19, 1e-07: "1e-07", float("inf"): "inf",
    },
    pa.decimal128(38, 2): {D("3.50"): "3.5", D(7): "7", D("1e19"): "1" + "0" * 19},
    pa.string(): {"7": "7", "3.5": "3.5", str(2**63): str(2**63), "x": "x"},
    pa.binary(): {b"7": "7", b"3.5": "3.5", b"x": "x"},
    pa.large_string(): {"x": "x", "07": "07"},
    pa.string_view(): {"x": "x"},
}  # fmt: skip


def found_in(column: pa.Array) -> set[str]:
    """The texts that are counted of a column whose values are to be discovered."""
    city = CategoricalAttribute("x", ("declared",), other=True)
    batch = pa.record_batch([column], ["x"])
    (counted,) = encode_values(OpenColumns(None, [city], []), "record", batch)
    return {text.decode().removeprefix("0:") for text in counted[0].texts.to_pylist()}


@pytest.mark.parametrize("kind", COLUMNS, ids=str)
def test_found_counted_hashed_and_limited_alike_in_every_type(kind):
    texts = list(COLUMNS[kind].values())
    values = pa.array(list(COLUMNS[kind]), kind)
    as_texts = pa.array(texts)
    domain = CategoricalAttribute("x", tuple(texts))
    for column in (values, as_texts, as_texts.dictionary_encode()):
        assert found_in(column) == set(texts)
        assert encode_column(domain, column).tolist() == list(range(len(texts)))
    for place, text in enumerate(texts):
        alone = encode_column(CategoricalAttribute("x", (text, "declared")), values)
        assert np.flatnonzero(alone == 0).tolist() == [place]
    elements, valid = key_elements(values, "text", HASH)
    of_texts, _ = key_elements(as_texts, "text", HASH)
    assert np.array_equal(elements[valid], of_texts[valid])
    whole = np.array([text.lstrip("-").isdigit() and abs(int(text)) < 2**64 for text in texts])
    assert valid[whole].all()  # fractions are no keys
    if kind not in (pa.float16(), pa.float32()):  # whose fractions are exact as units
        assert np.array_equal(unit_fingerprints(values)[0], unit_fingerprints(as_texts)[0])


def codes(values: tuple[Any, ...], column: pa.Array) -> list[int]:
    return encode_column(CategoricalAttribute("x", values), column).tolist()


@pytest.mark.parametrize("declared", ["1", "1.0"])
def test_whole_number_is_one_category_with_and_without_its_point(declared):
    """pandas writes a column of integers with a missing one as 1.0, to CSV and to Parquet."""
    for column in (pa.array([1]), pa.array([1.0]), pa.array(["1"]), pa.array(["1.0"])):
        assert codes((declared,), column) == [0]
    for column in (pa.array(["01"]), pa.array(["1.00"]), pa.array(["+1"]), pa.array([1.5])):
        assert codes((declared,), column) == [-1]


def test_both_spellings_may_be_declared():
    for values in (("1", "1.0"), ("1.0", "1")):
        plain = values.index("1")
        assert codes(values, pa.array(["1", "1.0"])) == [plain, 1 - plain]
        assert codes(values, pa.array([1.0])) == codes(values, pa.array([1])) == [plain]


def test_check_names_the_cure_for_other_spellings_of_a_whole_number():
    check = DomainCheck(Domain((CategoricalAttribute("x", ("1", "2", "many")),)))
    check.add(pa.record_batch([pa.array(["1.00", "02", "2.0"])], ["x"]))
    assert check.columns[0].suggestion() == ({"values": [1, 2, "many"]}, 2)
