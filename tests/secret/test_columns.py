import dataclasses
import datetime
import decimal
import math

import numpy as np
import pyarrow as pa
import pytest
from column_reference import code_of
from executed_lines import lines_below
from hypothesis import example, given, settings, strategies as st

from beam_dp.domain.attributes import BooleanAttribute, CategoricalAttribute
from beam_dp.domain.dates import DateAttribute, DatetimeAttribute
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.secret.encoding import records
from beam_dp.secret.encoding.records import encode_column
from beam_dp.secret.encoding.units import arrow_column

BASES = [
    IntegerAttribute("a", 0, 3),
    IntegerAttribute("a", -2, 300),
    IntegerAttribute("a", 7, 7),
    IntegerAttribute("a", -(2**63), -(2**63) + 5),
    IntegerAttribute("a", 2**63 - 300, 2**63 - 1),
    IntegerAttribute("a", -100, 100_000),
    NumericAttribute("a", (0, 1, 2.5, 100)),
    NumericAttribute("a", (-1e300, -1e-300, 0.1, 2**63, 2.0**64)),
    NumericAttribute("a", tuple(np.linspace(-5, 5, 300))),
    BooleanAttribute("a"),
    CategoricalAttribute("a", ("x", "", "1", "true", "é", "-0", "01")),
    CategoricalAttribute("a", (0, 1, "yes", -7, 2**63 - 1, "x\0y")),
    CategoricalAttribute("a", tuple(range(300))),
    CategoricalAttribute("a", ("1", 2, "-3", "04")),
    DateAttribute("a", ("1969-12-30", "1970-01-01", "1970-01-03", "2020-02-29")),
    DatetimeAttribute("a", ("1677-01-01", "1970-01-01T00:00:00.5", "2263-01-01")),
    DatetimeAttribute(
        "a", ("1970-01-01T00:00Z", "1970-01-01T00:00:01.000001Z", "2020-01-01T00:00Z")
    ),
]
LOOSE = {"case": "ignore", "trim": True}
OPTIONS = [
    IntegerAttribute("a", 0, 3, nullable=True, null_values=(-9, "NA", "", "5"), **LOOSE),
    IntegerAttribute("a", 0, 3, clip=True, nullable=True, null_values=("-1", "x", 2**63 - 1)),
    IntegerAttribute("a", 250, 260, clip=True),
    NumericAttribute("a", (0, 1, 2.5, 100), clip=True, nullable=True, null_values=(-0.5, "nan")),
    NumericAttribute("a", tuple(np.linspace(-5, 5, 300)), clip=True, other=True),
    BooleanAttribute("a", nullable=True, null_values=("x", 9, "-1"), case="ignore"),
    BooleanAttribute("a", true_values=("yes", 1, "\u00df"), false_values=("x", 2), **LOOSE),
    BooleanAttribute(
        "a", true_values=("1",), false_values=("0", "X "), nullable=True, null_values=("", 7)
    ),
    CategoricalAttribute("a", ("\u00c9", "K", "TRUE", 7, "8"), other=True, **LOOSE),
    CategoricalAttribute("a", ("x", "true"), nullable=True, null_values=("", 3), case="ignore"),
    CategoricalAttribute("a", (" x", 1, "5."), trim=True),
    DateAttribute(
        "a", ("1970-01-01", "1970-01-03"), clip=True, nullable=True,
        null_values=("9999-12-31", "x", "1969-12-31T05:00"),
    ),
    DatetimeAttribute(
        "a", ("1970-01-01T00:00:00.5", "1970-01-03"), other=True, nullable=True, trim=True,
        null_values=("9999-12-31", "", "1970-01-01"),
    ),
    DatetimeAttribute("a", ("1970-01-01T00:00Z", "1970-01-02T00:00Z"), clip=True),
]  # fmt: skip


def _with_flags(base, other, nullable):
    values = [*getattr(base, "values", ())]
    return dataclasses.replace(
        base,
        other=other and "other" not in values,
        nullable=nullable,
        null_values=base.null_values if nullable else (),
    )


attributes = st.builds(
    _with_flags, st.sampled_from(BASES + 2 * OPTIONS), st.booleans(), st.booleans()
)
dates = st.dates() | st.sampled_from([datetime.date(1970, 1, day) for day in (1, 2, 3, 4)])
times = st.datetimes() | st.datetimes(
    datetime.datetime(1969, 12, 31), datetime.datetime(1970, 1, 4)
)
int64s = st.integers(-5, 310) | st.integers(-(2**63), 2**63 - 1)
uint64s = st.integers(0, 10) | st.integers(2**63 - 5, 2**64 - 1)
floats = st.floats() | st.integers(-5, 310).map(float) | st.sampled_from([0.1, 2.5, 100.0, -0.0])
TEXTS = [
    "x", "", "1", "01", "true", "TRUE ", " 5.0", "+3", "-0", "5.", "0x1F", "1e2", "nan", "inf",
    "1_0", "٣", "é", "\u017f", "1\n", "9223372036854775807", "-9223372036854775809", "1e999",
    "0" * 30, "9" * 400, ".5", "x\0y", "K", " true", "1 1", "-", "+", ".", "YES", " yes\t", "X",
    " ", "ẞ", "\u212a", "5", "-9", "-09.0", "-0.50", "NA", " na", "7", "3", "03", "1" + "0" * 25,
    "-1" + "0" * 308, "9" * 309, "1970-01-01", "1970-01-03 ", "9999-12-31", "9999-12-31T00:00Z",
    "1970-01-01T05:00:00.5", "1970-01-01 00:00:00.500001-01:30", "1970-01-01T00:00+00",
    "1970-01-01T24:00", "1969-02-29", "0001-01-01T00:00Z", "1970-1-1", "1970-01-01T",
]  # fmt: skip
texts = (
    st.sampled_from(TEXTS)
    | dates.map(str)
    | times.map(str)
    | times.map(lambda time: time.replace(microsecond=0).isoformat() + "Z")
    | st.integers(-5, 310).map(str)
    | st.floats().map(repr)
    | st.text(max_size=4)
)
blobs = texts.map(str.encode) | st.binary(max_size=3)
decimals = st.decimals(
    allow_nan=False, allow_infinity=False, places=2, min_value=-400, max_value=400
)


def _strings(values, kind):
    """An array of strings from bytes, whatever they are."""
    binary = pa.binary() if kind == pa.string() else pa.large_binary()
    array = pa.array(values, binary)
    return pa.Array.from_buffers(kind, len(values), array.buffers())


near_times = st.datetimes(datetime.datetime(1678, 1, 1), datetime.datetime(2262, 1, 1))


def _timestamps(values, unit, zone):
    """Whole units of the time, in UTC where there is a zone."""
    return (
        pa.array(_read_back(values, unit, None), pa.timestamp("us"))
        .cast(pa.timestamp(unit))
        .cast(pa.int64())
        .cast(pa.timestamp(unit, zone))
    )


def _read_back(values, unit, zone):
    step = {"s": 10**6, "ms": 1000}.get(unit, 1)
    zone = zone and datetime.UTC
    return [v and v.replace(microsecond=v.microsecond // step * step, tzinfo=zone) for v in values]


def _array(kind):
    """A strategy of (array, what its values are)."""

    def of(elements, build):
        return st.lists(st.none() | elements, max_size=12).map(lambda v: (build(v), v))

    def typed(elements, arrow_type):
        return of(elements, lambda v: pa.array(v, arrow_type))

    if kind.lstrip("uint").isdecimal():
        bits = int(kind.lstrip("uint"))
        low, high = (
            (0, 2**bits - 1) if kind[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
        inside = (uint64s if kind == "uint64" else int64s).filter(lambda v: low <= v <= high)
        return typed(inside | st.sampled_from([low, high]), getattr(pa, kind)())
    if kind == "float16":  # Arrow before 20 takes numpy's alone

        def halves(values):
            own = [None if each is None else np.float16(each) for each in values]
            return pa.array(own, pa.float16())

        return of(st.floats(width=16), halves)
    if kind == "float32":
        return typed(st.floats(width=32), pa.float32())
    table = {
        "float64": lambda: typed(floats, pa.float64()),
        "bool": lambda: typed(st.booleans(), pa.bool_()),
        "null": lambda: typed(st.nothing(), pa.null()),
        "string": lambda: typed(texts, pa.string()),
        "large_string": lambda: typed(texts, pa.large_string()),
        "string_view": lambda: typed(texts, pa.string_view()),
        "binary": lambda: typed(blobs, pa.binary()),
        "binary_view": lambda: typed(blobs, pa.binary_view()),
        "fixed": lambda: typed(st.sampled_from([b"1 ", b"\xff\xff", b"01"]), pa.binary(2)),
        "broken string": lambda: of(blobs, lambda v: _strings(v, pa.string())),
        "broken large": lambda: of(blobs, lambda v: _strings(v, pa.large_string())),
        "decimal128": lambda: typed(decimals, pa.decimal128(38, 2)),
        "decimal256": lambda: typed(decimals, pa.decimal256(60, 2)),
        "date32": lambda: typed(dates, pa.date32()),
        "date64": lambda: typed(dates, pa.date64()),
        **{
            f"timestamp {unit} {zone}": lambda unit=unit, zone=zone: of(
                near_times if unit == "ns" else times, lambda v: _timestamps(v, unit, zone)
            ).map(lambda pair: (pair[0], _read_back(pair[1], unit, zone)))
            for unit in ("s", "ms", "us", "ns")
            for zone in (None, "Europe/Berlin")
        },
        "date dictionary": lambda: of(
            dates, lambda v: pa.array(v, pa.date32()).dictionary_encode()
        ),
        "dictionary": lambda: of(texts, lambda v: pa.array(v, pa.string()).dictionary_encode()),
        "int dictionary": lambda: of(int64s, lambda v: pa.array(v, pa.int64()).dictionary_encode()),
        "run end": lambda: of(int64s, lambda v: pa.compute.run_end_encode(pa.array(v, pa.int64()))),
    }
    return table[kind]()


KINDS = [
    *[f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)],
    "float16", "float32", "float64", "bool", "null", "string", "large_string", "string_view",
    "binary", "binary_view", "fixed", "broken string", "broken large", "decimal128", "decimal256",
    "dictionary", "int dictionary", "run end", "date32", "date64", "date dictionary",
    *[f"timestamp {unit} {zone}" for unit in ("s", "ms", "us", "ns")
      for zone in (None, "Europe/Berlin")],
]  # fmt: skip


def _near_levels(attribute):
    """The integers at which this attribute's codes change, and what wraps to them."""
    if isinstance(attribute, (DateAttribute, DatetimeAttribute)):
        levels = [0, 18_321]
    elif isinstance(attribute, CategoricalAttribute):
        levels = [int(value) for value in map(str, attribute.values) if value.lstrip("-").isdigit()]
        levels = [min(levels), max(levels)] if levels else [0]
    elif isinstance(attribute, NumericAttribute):
        levels = [int(edge) for edge in attribute.edges if abs(edge) < 1e20][:9]
        levels += [int(edge) for edge in attribute.edges[-2:] if abs(edge) < 1e20]
    else:
        levels = [getattr(attribute, "minimum", 0), getattr(attribute, "maximum", 1)]
    near = {level + step for level in levels for step in (-1, 0, 1)}
    wraps = [sign * 2**bits for bits in (8, 16, 32, 64) for sign in (-1, 1)]
    ends = {-(2**63), 2**63 - 1, 2**63, 2**64 - 1}
    return sorted(near | {value + wrap for value in near for wrap in wraps} | ends)


def _fitting(kind, near, edges):
    """An array of a kind that holds as many of these numbers as it can, and what it holds."""
    if kind.lstrip("uint").isdecimal():
        info = np.iinfo(kind)
        values = [value for value in near if info.min <= value <= info.max]
        # More than the table of a narrow column has entries: it must be used, and be right.
        span = range(info.min, info.max + 1) if info.bits == 8 else range(100)
        values = [*values, *span, *span]
        return pa.array(values, getattr(pa, kind)()), values
    numbers = [float(value) for value in near] + list(edges)
    numbers += [float(np.nextafter(x, side)) for x in numbers for side in (-np.inf, np.inf)]
    if kind == "float32":
        with np.errstate(over="ignore"):
            numbers = np.array(numbers).astype(np.float32).tolist()
    if kind in ("float32", "float64"):
        return pa.array(numbers, getattr(pa, kind)()), numbers
    forms = ("{}", " {} ", "{}.0", "+{}", "0{}", "{}.", "0x{}", "{}e0", "{}x")
    texts = [form.format(value) for form in forms for value in near] + list(map(repr, numbers))
    return pa.array(texts, getattr(pa, kind)()), texts


FITTED = [
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float32", "float64", "string"),
]


def check_near_levels(kind, base, flags):
    attribute = _with_flags(base, *flags)
    edges = [edge for edge in getattr(base, "edges", ())[:20] if isinstance(edge, float)]
    array, values = _fitting(kind, _near_levels(base), edges)
    expected = _expected(attribute, values)
    assert encode_column(attribute, array).tolist() == expected, (kind, attribute)
    # One value at a time, so that no other one decides which way is taken.
    for place in range(0, len(values), 7):
        alone = encode_column(attribute, array.slice(place, 1)).tolist()
        assert alone == expected[place : place + 1], (kind, attribute, values[place])


def test_values_at_and_near_levels_get_expected_codes():
    """Each type and each attribute in a few pairs."""
    for number, base in enumerate(BASES + OPTIONS):
        for step, flags in enumerate([(False, False), (True, True)]):
            check_near_levels(FITTED[(number + 4 * step) % len(FITTED)], base, flags)


@pytest.mark.part
@pytest.mark.parametrize("kind", FITTED)
def test_values_at_and_near_every_level_get_expected_codes(kind):
    for base in BASES + OPTIONS:
        for flags in ((False, False), (True, True)):
            check_near_levels(kind, base, flags)


def test_failed_arrow_conversion_affects_no_other_value(monkeypatch):
    code_by_type = records._code_by_type
    refused = []

    def refuse_whole_column(levels, window):
        if not refused:
            refused.append(window)
            raise pa.ArrowNotImplementedError("no such kernel")
        return code_by_type(levels, window)

    monkeypatch.setattr(records, "_code_by_type", refuse_whole_column)
    array = pa.array(["3", None, "x"])
    assert encode_column(IntegerAttribute("a", 0, 5, nullable=True), array).tolist() == [3, 6, -1]


def _expected(attribute, values):
    return [code_of(attribute, value) for value in values]


def check_codes(kind, data):
    attribute = data.draw(attributes)
    array, values = data.draw(_array(kind))
    expected = _expected(attribute, values)
    codes = encode_column(attribute, array)
    assert codes.tolist() == expected
    assert codes.dtype == np.min_scalar_type(-attribute.size)
    start = data.draw(st.integers(0, len(values)))
    assert encode_column(attribute, array.slice(start)).tolist() == expected[start:]
    if kind != "run end":
        chunked = pa.chunked_array([array.slice(start), array.slice(0, start)], type=array.type)
        assert encode_column(attribute, chunked).tolist() == expected[start:] + expected[:start]


@given(st.sampled_from(KINDS), st.data())
@settings(max_examples=150)
def test_codes_of_any_type_match_a_reference_that_reads_single_values(kind, data):
    check_codes(kind, data)


@pytest.mark.part
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=40)
def test_codes_of_each_type_match_a_reference_that_reads_single_values(kind, data):
    check_codes(kind, data)


zoned = times.map(lambda time: time.replace(tzinfo=datetime.UTC))
objects = st.one_of(st.none(), st.booleans(), int64s, uint64s, st.integers(), floats, texts, blobs,
                    decimals, dates, times, zoned)  # fmt: skip


@given(attributes, st.lists(objects, max_size=12))
@example(IntegerAttribute("a", -(2**63), -(2**63)), [-(2**63) - 1])
@example(CategoricalAttribute("a", ("0", "7")), [False, "0.0", b"7.0", 7])
@settings(max_examples=80)
def test_mixed_python_values_are_coded_one_by_one(attribute, values):
    assert encode_column(attribute, arrow_column(values)).tolist() == _expected(attribute, values)


def test_unsupported_values_are_outside_the_domain_or_other():
    values = [
        [1], {"a": 1}, (1,), object(), datetime.date(2020, 1, 1), 1j, np.datetime64(1, "ns"),
        decimal.Decimal("NaN"), decimal.Decimal("sNaN"), decimal.Decimal("Infinity"), math.nan,
        "\ud800", np.longdouble("inf"), 10**5000,
    ]  # fmt: skip
    for base in BASES:
        if not base.kind.startswith("date"):
            assert encode_column(base, arrow_column(values)).tolist() == [-1] * len(values)
            codes = encode_column(_with_flags(base, True, False), arrow_column(values))
            assert {*codes.tolist()} == {base.num_levels}


class Coded(pa.ExtensionType):
    def __init__(self):
        super().__init__(pa.int8(), "beam_dp.test")

    def __arrow_ext_serialize__(self):
        return b""


NULLABLE = IntegerAttribute("a", 0, 3, nullable=True)
UNION = pa.UnionArray.from_sparse(
    pa.array([0, 1, 0, 1], pa.int8()),
    [pa.array([1, 0, None, 0]), _strings([b"x", b"2", b"x", b"\xff"], pa.string())],
)
CODED = pa.ExtensionArray.from_storage(Coded(), pa.array([1, None, 9], pa.int8()))


def test_union_and_extension_are_read_as_what_they_hold():
    assert encode_column(NULLABLE, UNION).tolist() == [1, 2, 4, -1]
    assert encode_column(NULLABLE, CODED).tolist() == [1, 4, -1]


def test_long_invalid_text_is_dropped_in_few_steps():
    array = pa.array(["1" * 200_000 + "x", " " * 200_000 + "x", "1" * 200_000])
    with lines_below(200_000):
        for base in BASES:
            assert encode_column(base, array).tolist() == [-1, -1, -1]
