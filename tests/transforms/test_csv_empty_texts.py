"""An empty text in quotes is a text on every line, whatever else is on the line."""

from __future__ import annotations

from hypothesis import given, strategies as st

from beam_dp.transforms.reading.csv_lines import parse_lines

# Ways to write a field, with its value; the last ones have irregular quotes, or are not UTF-8.
FIELDS = {
    b"": None, b'""': "", b"a": "a", b'"a"': "a", b'"a,"",b"': 'a,",b', b'""""': '"', b'" "': " ",
    b'5" nail': '5" nail', b'x""': 'x""', b"\xff": "\udcff", b'"\xff"': "\udcff",
}  # fmt: skip


@given(st.lists(st.lists(st.sampled_from(sorted(FIELDS)), min_size=2, max_size=2), min_size=1))
def test_empty_text_is_one_value_beside_any_field(lines):
    block = b"".join(b",".join(line) + b"\n" for line in lines)
    found = [
        tuple(None if text is None else as_text(text) for text in row)
        for batch in parse_lines(block, ["x", "y"], ["x", "y"])
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]
    expected = [tuple(FIELDS[field] for field in line) for line in lines]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def as_text(value: str | bytes) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
