"""Lines of CSV files are records of their own; damaged files of any kind are refused."""

import bz2
import csv
import gzip
import io
import itertools
import lzma
import pathlib
import random
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import zstandard
from apache_beam.io.filesystem import CompressionTypes
from hypothesis import example, given, settings, strategies as st

import beam_dp.transforms.reading.csv_lines as csv_lines
from beam_dp.domain.schemas.file_kinds import Decompressed
from beam_dp.errors import InputError
from beam_dp.transforms.job_page import ReadError
from beam_dp.transforms.reading.csv_lines import parse_lines
from beam_dp.transforms.reading.formats import Wanted
from beam_dp.transforms.reading.read import Reading, ReadRecords, _ReadRange, _SplitFile
from pipelines.flags import read_text

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
                found += [tuple(map(text_of, row.values())) for row in batch.to_pylist()]
    return found


def text_of(value: str | bytes | int | None) -> str | None:
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
                found += [text_of(value) for value in batch.column("a").to_pylist()]
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


def test_header_that_cannot_be_read_is_an_error():
    for data in (b"\n1,2\n", b'a,"b\n1,2\n', b"\xff,b\n1,2\n"):
        with pytest.raises((ValueError, csv.Error)):
            csv_lines.read_header(io.BytesIO(data))


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
        tuple(
            each.decode("utf-8", "surrogateescape") if isinstance(each, bytes) else each
            for each in row
        )
        for batch in parse_lines(block, ["x", "y"], ["x", "y"])
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]
    expected = [tuple(FIELDS[field] for field in line) for line in lines]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gz": lambda data: gzip.compress(data, mtime=0),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
    "deflate": zlib.compress,
    "zst": zstandard.compress,
    "zstd": zstandard.compress,
}
MOSTLY_IN_PART = [
    pytest.param(each, marks=() if each in ("gz", "zst") else pytest.mark.part)
    for each in COMPRESSIONS
]
LINES = random.Random(1).choices(range(10**6), k=60)
CSV = b"id\n" + b"".join(b"%d\n" % number for number in LINES)
HALF = CSV.index(b"\n", len(CSV) // 2) + 1


def num_records(path: pathlib.Path, columns: Sequence[str] = ("id",)) -> int:
    """How many records a file has, read as a worker reads it."""
    name = path.suffixes[0][1:]
    ranges = _SplitFile("", name).process((str(path), path.stat().st_size))
    step = _ReadRange(name)
    step.reading = Reading(Wanted(list(columns)))
    return sum(batch.num_rows for each in ranges for batch in step.process(each))


def assert_stops_the_job(path: pathlib.Path, contents: Iterable[bytes]) -> None:
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(ReadError, match="people"):
            num_records(path)


def test_every_compression_that_beam_detects_is_tested():
    beams = {CompressionTypes.detect_compression_type(f"a.{each}") for each in COMPRESSIONS}
    kinds = {value for name, value in vars(CompressionTypes).items() if name.isupper()}
    assert beams == kinds - {CompressionTypes.AUTO, CompressionTypes.UNCOMPRESSED}


@pytest.mark.parametrize("extension", MOSTLY_IN_PART)
def test_truncated_compressed_file_stops_the_job(tmp_path, extension):
    path = tmp_path / f"people.csv.{extension}"
    compress = COMPRESSIONS[extension]
    whole = compress(CSV)
    path.write_bytes(whole)
    assert num_records(path) == 60
    assert_stops_the_job(path, (whole[:length] for length in range(len(whole))))
    parts = compress(CSV[:HALF]), compress(CSV[HALF:])
    whole = b"".join(parts)
    path.write_bytes(whole)
    assert num_records(path) == 60
    lengths = range(len(parts[0]) + 1, len(whole))
    assert_stops_the_job(path, (whole[:length] for length in lengths))


@pytest.mark.parametrize("extension", COMPRESSIONS)
def test_compressed_files_are_read_whole_or_not_at_all(tmp_path, extension):
    path = tmp_path / f"people.csv.{extension}"
    compress = COMPRESSIONS[extension]
    data = b"id\n" + b"".join(b"%d\n" % (i * i) for i in range(40_000))
    edges = range(0, len(data), 50_000)
    path.write_bytes(b"".join(compress(data[edge : edge + 50_000]) for edge in edges))
    assert num_records(path) == 40_000
    whole = COMPRESSIONS[extension](CSV)
    garbage = (b"\n", b"garbage", b"\0" * 512, b"id\n7\n" * 99)
    assert_stops_the_job(path, (whole + each for each in garbage))


def avro_file(codec: str = "null") -> tuple[bytes, set[int]]:
    """A file, and the places where it may end: behind its header and behind each block."""
    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}
    target = io.BytesIO()
    records = [{"id": number} for number in LINES]
    fastavro.writer(target, schema, records, codec, sync_interval=64, sync_marker=b"SYNC" * 4)
    data = target.getvalue()
    ends = {at + 16 for at in range(len(data)) if data.startswith(b"SYNC" * 4, at)}
    return data, ends


@pytest.mark.parametrize("codec", ["null", pytest.param("deflate", marks=pytest.mark.part)])
def test_truncated_avro_block_stops_the_job(tmp_path, codec):
    path = tmp_path / "people.avro"
    whole, ends = avro_file(codec)
    path.write_bytes(whole)
    assert num_records(path) == 60 and len(ends) > 3
    assert_stops_the_job(path, (whole[:length] for length in set(range(len(whole))) - ends))
    garbage = (b"\0", b"\0" * 40, b"garbage", b"\x02" * 99)
    assert_stops_the_job(path, (whole + each for each in garbage))


def test_truncated_parquet_file_stops_the_job(tmp_path):
    path = tmp_path / "people.parquet"
    pyarrow.parquet.write_table(pa.table({"id": LINES}), path, row_group_size=20)
    whole = path.read_bytes()
    assert num_records(path) == 60
    lengths = [*range(0, len(whole), 7), *range(len(whole) - 40, len(whole))]
    assert_stops_the_job(path, (whole[:length] for length in lengths))
    assert_stops_the_job(path, [whole + b"garbage"])


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
def test_empty_csv_file_next_to_other_files_needs_no_header(tmp_path, content):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(InputError, match="must match a file with the names of its columns"):
        ReadRecords(str(tmp_path / "*.csv"))
    (tmp_path / "b.csv").write_text("id\n1\n")
    ReadRecords(str(tmp_path / "*.csv"), ["id"])
    assert num_records(tmp_path / "a.csv") == 0


def test_reads_lines_that_end_in_carriage_returns(tmp_path):
    (tmp_path / "a.csv").write_bytes(b",id\r7,1\r8,2\r")
    assert num_records(tmp_path / "a.csv") == 2


@pytest.mark.parametrize("extension", ["gz", "zst"])
def test_rejects_truncated_compressed_queries(tmp_path, extension):
    path = tmp_path / f"queries.jsonl.{extension}"
    text = "a line\n" * 3_000_000  # more than what Beam's reader returns at once
    whole = COMPRESSIONS[extension](text.encode())
    path.write_bytes(whole)
    assert read_text("queries", str(path)) == text
    path.write_bytes(whole[:-1])
    with pytest.raises(
        InputError, match=r"queries: '.*' is not valid: must be whole: its compress"
    ):
        read_text("queries", str(path))


def test_expands_compression_bomb_in_small_parts():
    """4,000 blocks of zstd, each 128 KiB of one letter in four bytes: half a GiB in 16 KB."""
    header = bytes([0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x38])
    block = ((1 << 1) | (2**17 << 3)).to_bytes(3, "little") + b"7"
    last = ((1 << 1) | (2**17 << 3) | 1).to_bytes(3, "little") + b"7"
    tracemalloc.start()
    try:
        file = Decompressed(io.BytesIO(header + 4000 * block + last), CompressionTypes.ZSTD)
        assert file.read(3) == b"777"
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()
