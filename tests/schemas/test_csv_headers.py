"""One reader of headers: what a job reads, ``init`` reads, and both refuse the rest alike."""

from __future__ import annotations

import bz2
import gzip
import lzma

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from beam_dp.errors import InputError
from beam_dp.schemas.read import domain_draft
from beam_dp.transforms import ReadRecords

CSV = b"age,sex\n1,F\n"
READ = {
    "plain.csv": CSV,
    "capital.CSV": CSV,
    "mark.csv": b"\xef\xbb\xbf" + CSV,
    "quoted.csv": b'"age","sex"\n',
    "old.csv": b"age,sex\r1,F\r",
    "a.csv.gz": gzip.compress(CSV),
    "two.csv.gz": gzip.compress(CSV[:5]) + gzip.compress(CSV[5:]),
    "a.csv.bz2": bz2.compress(CSV),
    "a.csv.xz": lzma.compress(CSV),
    "a.csv.zst": zstandard.compress(CSV),
}


@pytest.mark.parametrize("name", READ)
def test_init_and_jobs_read_the_same_names(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(READ[name])
    assert [each["name"] for each in domain_draft(str(path)).attributes] == ["age", "sex"]
    assert ReadRecords(str(path)).schemas == {str(path): ["age", "sex"]}


REFUSED = {
    "a.csv": {
        gzip.compress(CSV): r"compressed \(gzip\): name it \.csv\.gz",
        bz2.compress(CSV): "bzip2",
        lzma.compress(CSV): "xz",
        zstandard.compress(CSV): "Zstandard",
        b"PK\x03\x04\x14\0": "workbook",
        b"\xd0\xcf\x11\xe0": "workbook",
        b"PAR1\x15\x04": "Parquet",
        b"\0\x05\x16\x07\0\x02": "macOS",
        b"\n<!DOCTYPE html>\n<table>": "blank",
        b"<!DOCTYPE html>\n<table>": "HTML",
        b"secret;b;c\n1;2;3\n": r"one column\. Is its separator ';'\? Only commas",
        b"secret\tb\n": "a tab",
        CSV.decode().encode("utf-16"): "UTF-16",
    },
    "a.csv.gz": {CSV: "compression is damaged", gzip.compress(CSV)[:-9]: "ends too early"},
}


@pytest.mark.parametrize("name", REFUSED)
def test_both_say_what_is_wrong_with_other_files(tmp_path, name):
    path = tmp_path / name
    for content, reason in REFUSED[name].items():
        path.write_bytes(content)
        for read in (domain_draft, ReadRecords):
            with pytest.raises(InputError, match=reason) as error:
                read(str(path))
            assert "secret" not in str(error.value)


def test_columns_without_a_name_of_their_own_are_left_out_with_a_word(tmp_path):
    """pandas writes its index as a column without a name."""
    path = tmp_path / "a.csv"
    path.write_text(",age,sex,note,note, ,2019\n0,30,F,a,b,,1\n")
    draft = domain_draft(str(path))
    assert [each["name"] for each in draft.attributes] == ["age", "sex", "2019"]
    assert dict(draft.left_out).keys() == {"", "note"}
    source = ReadRecords(str(path))
    source.check_column("domain", "age")
    with pytest.raises(InputError, match="unique"):
        source.check_column("domain", "note")


def test_column_whose_quoted_name_has_a_semicolon_is_one_column(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('"age; in years"\n1\n')
    assert ReadRecords(str(path)).schemas == {str(path): ["age; in years"]}


def test_jobs_read_parquet_by_every_extension_that_init_reads(tmp_path):
    for name in ("a.parquet", "a.pq", "a.PQ"):
        pq.write_table(pa.table({"x": ["a"]}), tmp_path / name)
        assert domain_draft(str(tmp_path / name)).attributes[0]["name"] == "x"
        assert ReadRecords(str(tmp_path / name)).file_format == "parquet"
