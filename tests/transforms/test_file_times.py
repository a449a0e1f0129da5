"""When files arrived: the same moment on every worker, whatever its time zone."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

import fake_amazon_storage
import fake_google_storage
import pytest
from fake_storage import FakeStorage

from beam_dp.transforms.reading.read import timed_files

SUMMER, WINTER = 1_782_907_200, 1_796_817_600  # 2026-07-01T12:00Z and 2026-12-09T12:00Z
SERVICES = {"gs": fake_google_storage, "s3": fake_amazon_storage}


def in_each_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Changes the time zone of this process: two of them have daylight saving time."""
    for zone in ("UTC", "America/New_York", "Australia/Lord_Howe"):
        with monkeypatch.context() as changed:
            changed.setenv("TZ", zone)
            time.tzset()
            yield zone
        time.tzset()


@contextlib.contextmanager
def landing(scheme: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeStorage]:
    """A bucket with two files that arrived in summer and in winter, and some others."""
    with SERVICES[scheme].serving(monkeypatch) as service:
        for name, written in (
            ("landing/1.parquet", "2026-07-01T12:00:00.000Z"),
            ("landing/2.parquet", "2026-12-09T12:00:00.000Z"),
            ("landing/below/3.parquet", "2026-12-09T12:00:00.000Z"),
            ("landing/4.csv", "2026-12-09T12:00:00.000Z"),
            ("landing.parquet", "2026-12-09T12:00:00.000Z"),
        ):
            service.put(name, b"a row")
            service.buckets["releases"].written[name] = written
        yield service


def found(pattern: str) -> list[tuple[str, int, float]]:
    return [(file.path.rpartition("/")[2], *file[1:]) for file in timed_files(pattern)]


@pytest.mark.parametrize("scheme", ["gs", pytest.param("s3", marks=pytest.mark.job)])
def test_times_of_bucket_objects_are_in_utc(scheme, monkeypatch):
    with landing(scheme, monkeypatch):
        expected = [("1.parquet", 5, SUMMER), ("2.parquet", 5, WINTER)]
        for zone in in_each_zone(monkeypatch):
            assert found(f"{scheme}://releases/landing/*.parquet") == expected, zone
            assert found(f"{scheme}://releases/landing/1.parquet") == expected[:1]
            assert len(found(f"{scheme}://releases/landing/**")) == 4


def test_time_of_a_local_file_is_in_utc(tmp_path, monkeypatch):
    for name, arrived in (("1.csv", SUMMER), ("2.csv", WINTER)):
        (tmp_path / name).write_bytes(b"a row")
        os.utime(tmp_path / name, (arrived, arrived))
    expected = [("1.csv", 5, SUMMER), ("2.csv", 5, WINTER)]
    for zone in in_each_zone(monkeypatch):
        assert sorted(found(f"{tmp_path}/*.csv")) == expected, zone
