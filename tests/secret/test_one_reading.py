"""A value has one reading: where values are found, counted, hashed and limited, in every type."""

import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import beam_dp as dp
from beam_dp.hashing.keys import HashKey
from beam_dp.secret.encoding.keys import key_elements
from beam_dp.secret.encoding.open_values import OpenColumns, encode_values
from beam_dp.secret.encoding.records import encode_column
from beam_dp.secret.encoding.units import unit_fingerprints

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
    city = dp.CategoricalAttribute("x", ("declared",), other=True)
    batch = pa.record_batch([column], ["x"])
    (counted,) = encode_values(OpenColumns(None, [city], []), "record", batch)
    return {text.decode().removeprefix("0:") for text in counted[0].texts.to_pylist()}


@pytest.mark.parametrize("kind", COLUMNS, ids=str)
def test_found_counted_hashed_and_limited_alike_in_every_type(kind):
    texts = list(COLUMNS[kind].values())
    values = pa.array(list(COLUMNS[kind]), kind)
    as_texts = pa.array(texts)
    domain = dp.CategoricalAttribute("x", tuple(texts))
    layouts = [
        values,
        *(as_texts.cast(stored) for stored in (pa.large_string(), pa.string_view())),
        as_texts.dictionary_encode(),
        pa.RunEndEncodedArray.from_arrays(range(1, len(texts) + 1), as_texts),
        pa.concat_arrays([pa.array(["sliced off"]), as_texts])[1:],
    ]
    for column in layouts:
        assert found_in(column) == set(texts)
        assert encode_column(domain, column).tolist() == list(range(len(texts)))
    for place, text in enumerate(texts):
        alone = encode_column(dp.CategoricalAttribute("x", (text, "declared")), values)
        assert np.flatnonzero(alone == 0).tolist() == [place]
    elements, valid = key_elements(values, "text", HASH)
    of_texts, _ = key_elements(as_texts, "text", HASH)
    assert np.array_equal(elements[valid], of_texts[valid])
    whole = np.array([text.lstrip("-").isdigit() and abs(int(text)) < 2**64 for text in texts])
    assert valid[whole].all()  # fractions are no keys
    if kind not in (pa.float16(), pa.float32()):  # whose fractions are exact as units
        assert np.array_equal(unit_fingerprints(values)[0], unit_fingerprints(as_texts)[0])
