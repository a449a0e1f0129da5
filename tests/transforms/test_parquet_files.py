"""Parquet files of other writers are read; what their footers show is refused before payment."""

from __future__ import annotations

import base64
import datetime
import io
import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import encryption

from beam_dp.domain.attributes import CategoricalAttribute
from beam_dp.domain.dates import DatetimeAttribute
from beam_dp.encoding.records import encode_column
from beam_dp.encoding.units import unit_fingerprints
from beam_dp.errors import InputError
from beam_dp.transforms import ReadRecords
from beam_dp.transforms.errors import ReadError
from beam_dp.transforms.reading.read import _SplitFile

TEXTS = [*["a", "b"] * 500, None, ""]  # short, so that a dictionary would be read
X = CategoricalAttribute("x", ("a", "b", ""), nullable=True)


def written(table: pa.Table, path: pathlib.Path, **options: Any) -> str:
    pq.write_table(table, path, row_group_size=600, **options)
    return str(path)


def read(path: str, column: str) -> pa.Array:
    batches = list(ReadRecords(path).batches([column], []))
    return pa.chunked_array([batch.column(0) for batch in batches])


@pytest.mark.parametrize(
    "encoding", ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "dictionary"]
)
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()], ids=str)
def test_short_texts_are_read_in_every_encoding(tmp_path, encoding, kind):
    options = {"use_dictionary": False, "column_encoding": {"x": encoding}}
    table = pa.table({"x": pa.array(TEXTS, kind)})
    path = written(table, tmp_path / "a.parquet", **options if encoding != "dictionary" else {})
    assert encode_column(X, read(path, "x")).tolist() == [*[0, 1] * 500, 3, 2]


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
def test_numbers_are_read_in_every_encoding_and_codec(tmp_path, compression):
    encodings = {"i": "DELTA_BINARY_PACKED", "f": "BYTE_STREAM_SPLIT", "b": "RLE"}
    table = pa.table({"i": range(100), "f": np.arange(100.0), "b": np.arange(100) < 50})
    options = {"use_dictionary": False, "column_encoding": encodings, "compression": compression}
    path = written(table, tmp_path / "a.parquet", data_page_version="2.0", **options)
    for name in encodings:
        assert read(path, name).to_pylist() == table[name].to_pylist()


def test_int96_times_of_all_years_are_themselves(tmp_path):
    """As nanoseconds of 64 bits, which Arrow reads by default, the year 9999 is 1816."""
    years = (1, 1500, 1816, 1969, 2021, 2263, 9999)
    times = [datetime.datetime(year, 12, 31, 23, 59, 59, 999_999) for year in years]
    table = pa.table({"t": pa.array([*times, None], pa.timestamp("us"))})
    path = written(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    edges = (*(f"{year:04}-01-01T00:00" for year in years), "9999-12-31T23:59:59.999999")
    bins = DatetimeAttribute("t", edges, nullable=True)
    column = read(path, "t")
    assert encode_column(bins, column).tolist() == [*range(len(years)), bins.null_code]
    assert unit_fingerprints(column)[0].tolist() == unit_fingerprints(table["t"])[0].tolist()


class Kms(encryption.KmsClient):
    """Keeps keys as they are."""

    def __init__(self, _: Any) -> None:
        encryption.KmsClient.__init__(self)

    def wrap_key(self, key: bytes, name: str) -> bytes:
        return base64.b64encode(key)

    def unwrap_key(self, key: bytes, name: str) -> bytes:
        return base64.b64decode(key)


@pytest.mark.parametrize("plaintext_footer", [True, False])
@pytest.mark.parametrize("algorithm", ["AES_GCM_V1", "AES_GCM_CTR_V1"])
def test_encrypted_file_is_refused(tmp_path, plaintext_footer, algorithm):
    """Without the refusal, a plain footer lets Arrow abort the process."""
    path = tmp_path / "a.parquet"
    how = encryption.EncryptionConfiguration(
        footer_key="f",
        column_keys={"c": ["secret"]},
        plaintext_footer=plaintext_footer,
        data_key_length_bits=128,
        encryption_algorithm=algorithm,
    )
    keys = encryption.CryptoFactory(Kms).file_encryption_properties(
        encryption.KmsConnectionConfig(), how
    )
    table = pa.table({"x": ["a"], "secret": [1]})
    with pq.ParquetWriter(path, table.schema, encryption_properties=keys) as writer:
        writer.write_table(table)
    with pytest.raises(InputError, match="must not be encrypted"):
        ReadRecords(str(path))
    with pytest.raises(ReadError, match=r"a\.parquet: must not be encrypted"):
        list(_SplitFile("", "parquet").process((str(path), path.stat().st_size)))


def with_footer(old: bytes, new: bytes) -> bytes:
    """A file with the columns x and y, and a change in the footer's entry of x."""
    sink = io.BytesIO()
    table = pa.table({"x": ["a", "b"], "y": ["a", "b"]})
    pq.write_table(table, sink, write_statistics=False, store_schema=False)
    content = sink.getvalue()
    start = content.index(b"\x19\x35\x00\x06\x10\x19\x18\x01x\x15\x02")
    end = start + 11
    return content[:start] + content[start:end].replace(old, new) + content[end:]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"\x01x\x15\x02", b"\x01x\x15\x06", "string, compressed as LZO"),
        (b"\x06\x10", b"\x06\x28", "string, of an unknown encoding"),
    ],
)
def test_codec_or_encoding_that_is_unknown_here_is_refused_before_the_job(
    tmp_path, old, new, reason
):
    path = tmp_path / "a.parquet"
    path.write_bytes(with_footer(old, new))
    source = ReadRecords(str(path))
    source.check_column("domain", "y")  # a column that can be read
    for argument in ("domain", "privacy_unit", "key", "event_time"):
        with pytest.raises(InputError, match=f"that can be read here .* it is {reason}"):
            source.check_column(argument, "x")
