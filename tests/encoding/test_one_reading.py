"""A value has one reading: where values are found, counted, hashed and limited, in every type."""

import dataclasses
import decimal
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import beam_dp as dp
from beam_dp.domain.files import domain_from_json
from beam_dp.encoding.check import DomainCheck
from beam_dp.encoding.keys import key_elements
from beam_dp.encoding.open_values import OpenColumns, encode_values
from beam_dp.encoding.records import encode_column
from beam_dp.encoding.units import arrow_column, unit_fingerprints
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


def codes(values: tuple[Any, ...], column: pa.Array) -> list[int]:
    return encode_column(dp.CategoricalAttribute("x", values), column).tolist()


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
    check = DomainCheck(dp.Domain((dp.CategoricalAttribute("x", ("1", "2", "many")),)))
    check.add(pa.record_batch([pa.array(["1.00", "02", "2.0"])], ["x"]))
    assert check.columns[0].suggestion() == ({"values": [1, 2, "many"]}, 2)


WORDS = {"type": "boolean", "true_values": ["stra\u00dfe", 1], "false_values": ["K"],
         "case": "ignore", "trim": True, "nullable": True, "null_values": ["", "N/A"]}  # fmt: skip
AGES = {"type": "integer", "min": 3, "max": 9, "clip": True, "nullable": True,
        "null_values": ["-9", "x"]}  # fmt: skip
SIZES = {"type": "numeric", "edges": [0, 1, 2], "clip": True, "nullable": True,
         "null_values": [-0.5]}  # fmt: skip
DAYS = {"type": "date", "edges": ["1970-01-02", "1970-01-03", "1970-01-04"]}
LOCAL = {"type": "datetime", "edges": ["1970-01-01T00:00:01.5", "1970-01-01T00:00:03.5"]}
BIG = "9" * 30

TABLE: list[tuple[dict[str, Any], dict[Any, int]]] = [
    (
        WORDS,
        {
            "STRASSE": 1, " Stra\u00dfe\t": 1, "stra\u1e9ee": 1, "1": 1, " 01.0": 1, 1.0: 1,
            "k": 0, "\u212a": 0, "": 2, "  ": 2, "n/a ": 2, "0": -1, 0: -1, "true": -1,
            "K\u00a0": 0, "stra\u00dfe\x1f": 1, "K\u00a0K": -1,
        },
    ),
    (
        AGES,
        {
            "3": 0, "10": 6, "-100": 0, BIG: 6, "-" + BIG: 0, int(BIG): 6, 1e30: 6, -1e30: 0,
            "9" * 309: -1, 10**309: -1, 7.5: -1, "7.5": -1, math.inf: -1, "inf": -1, "1e999": -1,
            "-9": 7, " -09.0": 7, -9.0: 7, "x": 7, "X": -1, "0x7": -1, 2**63: 6,
        },
    ),
    (
        SIZES,
        {
            -3: 0, "-3": 0, "3e9": 1, 1e300: 1, math.inf: -1, -math.inf: -1, "inf": -1, "1e999": -1,
            math.nan: -1, "nan": -1, 10**400: -1, "1" + "0" * 400: -1, -0.5: 2, "-5e-1": 2, "1": 1,
        },
    ),
    (
        DAYS,
        {"1970-01-02": 0, "1970-01-03T23:59": 1, "1970-01-04T23:59:59.999999999": 1,
         "1970-01-05": -1, "1970-01-01T23:59:59.999": -1, "1970-01-02T00:00Z": -1, 1: -1},
    ),
    (
        LOCAL,
        {"1970-01-01T00:00:01.499999999": -1, "1970-01-01 00:00:01.5": 0,
         "1970-01-01T00:00:03.500000000": 0, "1970-01-01T00:00:03.500000001": -1,
         "1970-01-01T00:00:60": -1, "1970-01-01T24:00": -1},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "expected"), TABLE, ids=lambda each: str(each.get("type", "")))
def test_value_has_the_same_level_alone_and_among_others(fields, expected):
    (attribute,) = domain_from_json({"attributes": [{"name": "a", **fields}]}).attributes
    for value, code in expected.items():
        assert encode_column(attribute, arrow_column([value])).tolist() == [code], value
    assert encode_column(attribute, arrow_column(list(expected))).tolist() == list(
        expected.values()
    )
    texts = {text: code for text, code in expected.items() if isinstance(text, str)}
    column = pa.array(texts)
    for stored in (column, column.dictionary_encode(), column.cast(pa.large_string()),
                   column.cast(pa.string_view()), column.cast(pa.binary())):  # fmt: skip
        assert encode_column(attribute, stored).tolist() == list(texts.values())


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_last_edge_of_times_is_exact_in_every_unit(unit):
    (attribute,) = domain_from_json({"attributes": [{"name": "a", **LOCAL}]}).attributes
    step = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    halves = range(9)
    counts = [half * step // 2 + extra for half in halves for extra in (-1, 0, 1)]
    found = encode_column(attribute, pa.array(counts, pa.timestamp(unit))).tolist()
    assert found == [0 if 3 * step <= 2 * count <= 7 * step else -1 for count in counts]


def test_encodes_times_correctly_if_edges_exceed_range_of_column_type():
    edges = ["0001-01-01", "1600-01-01", "1970-01-01", "2500-01-01", "9999-12-31"]
    fields = {"name": "a", "type": "datetime", "edges": edges}
    (attribute,) = domain_from_json({"attributes": [fields]}).attributes
    ends = pa.array([-(2**63), -1, 0, 2**63 - 1], pa.int64())
    assert encode_column(attribute, ends.cast(pa.timestamp("ns"))).tolist() == [1, 1, 2, 2]
    assert encode_column(attribute, ends.cast(pa.timestamp("s"))).tolist() == [-1, 1, 2, -1]


def test_trim_ignores_every_blank_of_unicode_and_those_without_width():
    """Spreadsheets and web pages write no-break spaces."""
    paris = dp.CategoricalAttribute("x", ("Paris",), trim=True)
    blanks = [chr(code) for code in range(0x3001) if chr(code).isspace()]
    assert len(blanks) > 20
    for blank in (*blanks, "\u200b", "\u2060", "\ufeff"):
        column = pa.array([f"{blank}Paris{blank}", f"Par{blank}is"])
        assert encode_column(paris, column).tolist() == [0, -1], repr(blank)
        assert encode_column(dataclasses.replace(paris, trim=False), column).tolist() == [-1, -1]
