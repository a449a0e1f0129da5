"""A record is one physical line: compared with Python's strict parser, one line at a time."""

from __future__ import annotations

import csv
import io
import itertools
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings, strategies as st

import beam_dp.transforms.reading.csv_lines as csv_lines
from beam_dp.transforms.reading.csv_lines import parse_lines

NAMES = ["a", "b", "c"]
PIECES = [b'"', b",", b"x", b"7", b"\n", b"\r\n", b"\r", b"\xff", b"\xc3\xa9", b"0x1F"]
PIECES += [b"1,2,3\n", b'"x,y",b,c\n', b'"q""q",,\n', b'""', b'1,"2\n', b" "]


def lines_of(body: bytes) -> list[bytes]:
    return body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")


def expected_records(body: bytes) -> list[tuple[str | None, ...]]:
    found = []
    for line in lines_of(body):
        try:
            rows = list(csv.reader([line.decode("utf-8", "surrogateescape")], strict=True))
        except csv.Error:
            continue
        if rows and len(rows[0]) == len(NAMES):
            found.append(tuple(field or None for field in rows[0]))
    return found


def read(
    data: bytes, cuts: list[int], integers: list[str], faults: Counter[str] | None = None
) -> list[tuple[str | None, ...]]:
    found = []
    edges = sorted({0, len(data), *cuts})
    for start, stop in itertools.pairwise(edges):
        file = io.BytesIO(data)
        names, position = csv_lines.read_header(file)
        assert names == NAMES
        position = start - 1 if start else position
        file.seek(position)
        for block in csv_lines.line_blocks(file, position, start, stop):
            for batch in csv_lines.parse_lines(block, names, names, integers, faults):
                found += [tuple(map(text, row.values())) for row in batch.to_pylist()]
    return found


def text(value: str | bytes | int | None) -> str | None:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    return None if value in (None, "") else str(value)


@settings(max_examples=120)
@given(
    header=st.sampled_from([b"a,b,c\n", b"a,b,c\r\n", b'\xef\xbb\xbf"a",b,c\n']),
    body=st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join),
    cuts=st.lists(st.integers(1, 200), max_size=4),
    block_bytes=st.sampled_from([3, 7, 20, 1000]),
    integers=st.sampled_from([[], ["a"], ["a", "c"]]),
)
def test_parses_every_line_independently(header, body, cuts, block_bytes, integers):
    data = header + body
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_lines, "BLOCK_BYTES", block_bytes)
        faults: Counter[str] = Counter()
        found = read(data, [cut for cut in cuts if cut < len(data)], integers, faults)
    if not integers:  # where " 7" may come as 7
        assert sorted(map(repr, found)) == sorted(map(repr, expected_records(body)))
    assert len(found) == len(expected_records(body))
    assert len(found) + faults.total() == sum(map(bool, lines_of(body)))  # blank lines are none


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_prints_nothing_about_an_invalid_line(capfd):
    block = b"1,\xff\n1,\xff,3,4\n1,2\n4,5,6\n"
    assert sum(b.num_rows for b in csv_lines.parse_lines(block, NAMES, NAMES, ["a"])) == 1
    assert capfd.readouterr() == ("", "")


def test_empty_line_is_a_record_only_if_the_file_has_one_column():
    assert [b.num_rows for b in csv_lines.parse_lines(b"1\n\n3\n", ["a"], ["a"])] == [3]
    assert [b.num_rows for b in csv_lines.parse_lines(b"1,2\n\n3,4\n", ["a", "b"], ["a"])] == [2]


def test_reads_column_as_integers_if_all_values_of_a_block_are_plain():
    (batch,) = csv_lines.parse_lines(b"1,2,3\n4,5,6\n", NAMES, NAMES, ["a"])
    assert batch.schema.types == [pa.int64(), pa.string(), pa.string()]
    for other in (b"x,5,6\n", b"0x1F,5,6\n", b"1e3,5,6\n"):
        (batch,) = csv_lines.parse_lines(b"1,2,3\n" + other, NAMES, NAMES, ["a"])
        assert batch.schema.types == [pa.string()] * 3


@pytest.mark.parametrize(
    "end", [b"\n", *(pytest.param(e, marks=pytest.mark.part) for e in (b"\r\n", b"\r"))]
)
def test_length_limit_applies_to_each_line_separately(monkeypatch, end):
    monkeypatch.setattr(csv_lines, "BLOCK_BYTES", 8)
    monkeypatch.setattr(csv_lines, "MAX_LINE_BYTES", 20)
    good = [("1", "2", "3")]
    for length in range(12, 30):
        line = b"x" * (length - 4 - len(end)) + b",2,3" + end
        kept = [("x" * (length - 4 - len(end)), "2", "3")] if length <= 20 else []
        for num_before, num_behind in itertools.product(range(9), (0, 1, 9)):
            data = b"a,b,c" + end + (b"1,2,3" + end) * num_before + line
            found = read(data + (b"1,2,3" + end) * num_behind, [], [])
            assert found == good * num_before + kept + good * num_behind


@settings(max_examples=120)
@given(
    st.lists(st.sampled_from([*PIECES, b"y" * 11]), max_size=30).map(b"".join),
    st.integers(1, 9),
)
def test_line_of_one_column_gives_at_most_one_record(body, block_bytes):
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_lines, "BLOCK_BYTES", block_bytes)
        patch.setattr(csv_lines, "MAX_LINE_BYTES", 20)
        for block in csv_lines.line_blocks(io.BytesIO(body), 0, 0, None):
            for batch in csv_lines.parse_lines(block, ["a"], ["a"]):
                found += [text(value) for value in batch.column("a").to_pylist()]
    expected = []
    for line in body.splitlines(keepends=True):
        content = line.rstrip(b"\r\n")
        if max(len(line), len(content) + 1) > 20:
            continue
        try:
            rows = list(csv.reader([content.decode("utf-8", "surrogateescape")], strict=True))
        except csv.Error:
            continue
        fields = rows[0] or [""]
        if len(fields) == 1:
            expected.append(fields[0] or None)
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


@pytest.mark.parametrize("bad", [b'"\n', b"\xff\n", b'"\r\n'])
def test_dropping_a_line_does_not_join_its_neighbours(bad):
    batches = csv_lines.parse_lines(b"\r" + bad + b"\n", ["a"], ["a"])
    found = [value for batch in batches for value in batch.column("a").to_pylist()]
    assert found.count(None) == 2


def test_unread_columns_may_share_a_name():
    (batch,) = csv_lines.parse_lines(b"1,2,3\n", ["a", "", ""], ["a"])
    assert batch.to_pylist() == [{"a": "1"}]


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf"])
def test_empty_file_has_no_columns(data):
    assert csv_lines.read_header(io.BytesIO(data))[0] == []


@pytest.mark.parametrize("data", [b"\n1,2\n", b'a,"b\n1,2\n', b"\xff,b\n1,2\n"])
def test_rejects_malformed_header(data):
    with pytest.raises((ValueError, csv.Error)):
        csv_lines.read_header(io.BytesIO(data))


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\r"])
def test_reads_no_records_from_file_with_only_a_header(end):
    data = b"a,b" + end
    assert csv_lines.read_header(io.BytesIO(data)) == (["a", "b"], len(data))


@settings(max_examples=200)
@example([b'"', b"a\n", b'a"'], 1)
@example([b'"a"', b",a,", b'"a"'], 1)
@example([b'"a"', b"\r\n", b'"a"'], 1)
@example([b'"', b"\r", b'"'], 1)
@given(
    st.lists(
        st.sampled_from([b'"', b",", b"\n", b"\r", b"\r\n", b"a", b'"a"', b'""', b'","', b'"\n"']),
        max_size=24,
    ),
    st.sampled_from([1, 3, 2**17]),
)
def test_block_is_regular_exactly_if_it_has_no_odd_line(parts, piece):
    block = b"".join(parts) + b"\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_lines, "_PIECE_BYTES", piece)
        is_regular = csv_lines._all_regular(block)
        patch.setattr(csv_lines, "_all_regular", lambda _: False)
        assert is_regular == (csv_lines._take_out_odd_quotes(block) == (block, []))
    lines = block[:-1].split(b"\n")
    fields = [field for line in lines for field in line.split(b",")]
    quoted = all(
        len(each) > 1 and each[:1] == each[-1:] == b'"' and not {*each[1:-1]} & {*b'"\r'}
        for each in fields
    )
    assert csv_lines._all_quoted(np.frombuffer(block, np.uint8)) == quoted


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
