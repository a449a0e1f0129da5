"""Options of a domain, value by value: what the random tests may miss."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pyarrow as pa
import pytest

from beam_dp.domain.attributes import CategoricalAttribute
from beam_dp.domain.files import domain_from_json
from beam_dp.encoding.records import encode_column
from beam_dp.encoding.units import arrow_column

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
    paris = CategoricalAttribute("x", ("Paris",), trim=True)
    blanks = [chr(code) for code in range(0x3001) if chr(code).isspace()]
    assert len(blanks) > 20
    for blank in (*blanks, "\u200b", "\u2060", "\ufeff"):
        column = pa.array([f"{blank}Paris{blank}", f"Par{blank}is"])
        assert encode_column(paris, column).tolist() == [0, -1], repr(blank)
        assert encode_column(dataclasses.replace(paris, trim=False), column).tolist() == [-1, -1]
