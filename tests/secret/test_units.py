import datetime
import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from beam_dp.secret.encoding.canonical import canonical_bytes
from beam_dp.secret.encoding.units import arrow_column, short_values, unit_fingerprints

UTC = datetime.UTC


def fingerprints(column: pa.Array) -> list[tuple[int, int] | None]:
    found, valid = unit_fingerprints(column)
    assert found.shape == (2, len(column))
    return [
        tuple(pair) if there else None
        for pair, there in zip(found.T.tolist(), valid.tolist(), strict=True)
    ]


@settings(max_examples=100)
@given(
    st.lists(
        st.one_of(
            st.none(),
            st.integers(),
            st.integers(-(2**63), 2**63 - 1),
            st.floats(),
            st.text(),
            st.text(min_size=14, max_size=17),
            st.binary(max_size=20),
            st.decimals(),
            st.booleans(),
            st.datetimes(),
        ),
        max_size=12,
    )
)
def test_fingerprints_are_equal_exactly_if_texts_are_equal(values):
    texts = [canonical_bytes(value) for value in values]
    together = fingerprints(arrow_column(values))
    alone = [fingerprints(arrow_column([value]))[0] for value in values]
    assert together == alone
    pairs = list(zip(texts, alone, strict=True))
    for (text, one), (other_text, other) in itertools.combinations(pairs, 2):
        assert (text == other_text) == (one == other)


TEXT_TYPES = [
    *(pa.string(), pa.large_string(), pa.string_view()),
    *(pa.binary(), pa.large_binary(), pa.binary_view()),
]


@pytest.mark.parametrize("length", [1, 13, 14, 15, 18, 19, 20, 40])
def test_integer_written_as_float_is_the_same_unit_in_every_text_type(length):
    digits = "987654321098765432109876543210987654321098765432"[:length]
    expected = fingerprints(pa.array([digits, None, f"-{digits}", "0", "x"]))
    written = pa.array([f"{digits}.0", None, f"-{digits}.0", "-0.0", "x"])
    for kind in TEXT_TYPES:
        column = written.cast(pa.binary()).cast(kind)
        layouts = [column, pa.concat_arrays([column, column])[5:], column.dictionary_encode()]
        layouts.append(pa.RunEndEncodedArray.from_arrays([1, 2, 3, 4, 5], column))
        for layout in layouts:
            assert fingerprints(layout) == expected, layout.type
    fixed = pa.array([f"{digits}.0".encode()], pa.binary(length + 2))
    assert fingerprints(fixed) == expected[:1]


def test_unreadable_unit_affects_no_other_record():
    texts = pa.array([b"ok", b"\xff"]).view(pa.string())
    for column in (texts.cast(pa.string_view()), pa.StructArray.from_arrays([texts], ["a"])):
        found = fingerprints(column)
        assert found[0] == fingerprints(column.slice(0, 1))[0] is not None
        assert found[1] is None or found[1] != found[0]


def test_fingerprints_of_short_values_contain_them():
    texts = [b"", b"a", b"\0", b"a\0", b"x" * 14, b"x" * 15, b"\xff" * 15, b"7", b"-12", b"\xc3"]
    long = [b"x" * 16, b"1" * 18, b"-" + b"9" * 17, b"y" * 300]
    for size in range(len(texts) + 1):
        mixed = [*texts[:size], *long, *texts[size:]]
        names, _ = unit_fingerprints(pa.array(mixed, pa.binary()))
        found = short_values(names)
        found.validate(full=True)
        assert found.type == pa.large_binary()
        assert found.to_pylist() == [text if len(text) <= 15 else None for text in mixed]
    assert short_values(np.zeros((2, 0), np.uint64)).to_pylist() == []
