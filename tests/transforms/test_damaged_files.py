"""A truncated file is refused, wherever it was cut; and an unreadable one says why."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pathlib
import random
import tracemalloc
import zlib
from collections.abc import Callable, Iterable, Sequence

import fastavro
import pyarrow as pa
import pyarrow.parquet
import pytest
import zstandard
from apache_beam.io.filesystem import CompressionTypes

from beam_dp.errors import InputError
from beam_dp.transforms import ReadRecords
from beam_dp.transforms.errors import ReadError
from beam_dp.transforms.reading.formats import Decompressed, Wanted
from beam_dp.transforms.reading.read import Reading, _ReadRange, _SplitFile
from pipelines.flags import read_text

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
def test_trailing_bytes_after_compressed_stream_stop_the_job(tmp_path, extension):
    path = tmp_path / f"people.csv.{extension}"
    whole = COMPRESSIONS[extension](CSV)
    garbage = (b"\n", b"garbage", b"\0" * 512, b"id\n7\n" * 99)
    assert_stops_the_job(path, (whole + each for each in garbage))


@pytest.mark.parametrize("extension", COMPRESSIONS)
def test_reads_compressed_file_of_many_blocks_once(tmp_path, extension):
    path = tmp_path / f"people.csv.{extension}"
    compress = COMPRESSIONS[extension]
    data = b"id\n" + b"".join(b"%d\n" % (i * i) for i in range(40_000))
    edges = range(0, len(data), 50_000)
    path.write_bytes(b"".join(compress(data[edge : edge + 50_000]) for edge in edges))
    assert num_records(path) == 40_000


def test_rejects_file_truncated_in_its_header(tmp_path):
    path = tmp_path / "people.csv.zst"
    path.write_bytes(zstandard.compress(CSV)[:-1])
    with pytest.raises(InputError, match=r"input: '.*zst' is not valid: must be whole: its compr"):
        ReadRecords(str(path))


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


BAD_HEADERS = {
    "a blank line": (b"\nid,x\n1,2\n", "first line, which is blank"),
    "a blank line, as Windows writes it": (b"\r\nid,x\r\n1,2\r\n", "first line, which is blank"),
    "a blank line, as old Macs wrote it": (b"\rid,x\r1,2\r", "first line, which is blank"),
    "only a blank line": (b"\n", "first line, which is blank"),
    "a byte order mark alone in its line": (b"\xef\xbb\xbf\nid,x\n", "first line, which is blank"),
    "spaces": (b"  \t\nid,x\n1,2\n", "first line, which is blank"),
    "commas": (b",\nid,x\n1,2\n", "first line, which is blank"),
    "commas, spaces and quotes": (b' ,""," "\nid,x,y\n', "first line, which is blank"),
    "UTF-16": ("id,x\n1,2\n".encode("utf-16"), "must be UTF-8.*UTF-16"),
    "UTF-16, big ends first": ("\ufeffid,x\n".encode("utf-16-be"), "must be UTF-8.*UTF-16"),
    "UTF-16 without its mark": ("id,x\n1,2\n".encode("utf-16-le"), "must be UTF-8.*UTF-16"),
    "UTF-32": ("id,x\n1,2\n".encode("utf-32"), "must be UTF-8.*UTF-16"),
    "another encoding": ("größe,id\n1,2\n".encode("latin-1"), "must be UTF-8 text"),
    "an open quote": (b'id,"x\nsecret",y\n', "first line, with quotes that close"),
}


@pytest.mark.parametrize("case", BAD_HEADERS)
@pytest.mark.parametrize("extension", ["csv", "csv.gz"])
def test_rejects_csv_file_without_header(tmp_path, case, extension, monkeypatch):
    content, condition = BAD_HEADERS[case]
    content = gzip.compress(content) if extension == "csv.gz" else content
    (tmp_path / f"a.{extension}").write_bytes(content)
    with pytest.raises(
        InputError, match=rf"input: '.*a\.csv.*' is not valid: .*{condition}"
    ) as bad:
        ReadRecords(f"{tmp_path}/a.*")
    assert "\n" not in str(bad.value) and "secret" not in str(bad.value)
    # So is one that is not looked into before the job runs.
    with pytest.raises(ReadError, match=rf"a\.csv.*: .*{condition}"):
        num_records(tmp_path / f"a.{extension}")


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
