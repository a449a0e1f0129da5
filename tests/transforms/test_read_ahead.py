"""Parquet is decoded by a thread of its own, one batch ahead of who takes the records."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings, strategies as st

import beam_dp.transforms.reading.formats as formats
from beam_dp.transforms.reading.formats import FORMATS, Wanted


def numbered(count: int, read: list[int], fails_at: int | None = None) -> Iterator[pa.RecordBatch]:
    for number in range(count):
        if number == fails_at:
            raise OSError("damaged")
        read.append(number)
        yield pa.record_batch({"number": [number]})


@given(count=st.integers(0, 9))
def test_batches_come_in_their_order(count: int) -> None:
    batches = formats._read_ahead(numbered(count, []))
    assert [batch["number"][0].as_py() for batch in batches] == list(range(count))


@given(taken=st.integers(1, 5))
def test_one_batch_is_held_besides_that_of_the_caller(taken: int) -> None:
    read: list[int] = []
    batches = formats._read_ahead(numbered(9, read))
    for _ in range(taken):
        next(batches)
    batches.close()  # waits for the thread
    assert len(read) == taken + 1


def test_what_precedes_an_error_comes_first() -> None:
    batches = formats._read_ahead(numbered(9, [], fails_at=2))
    assert [next(batches)["number"][0].as_py() for _ in range(2)] == [0, 1]
    with pytest.raises(OSError, match="damaged"):
        next(batches)


@settings(max_examples=20, deadline=None)
@given(rows=st.integers(0, 300), group=st.integers(1, 90), batch=st.integers(1, 120))
def test_all_rows_of_a_range_are_read_in_order(
    tmp_path_factory: pytest.TempPathFactory, rows: int, group: int, batch: int
) -> None:
    path = str(pathlib.Path(tmp_path_factory.mktemp("rows"), "rows.parquet"))
    table = pa.table({"number": np.arange(rows), "text": [f"t{i % 7}" for i in range(rows)]})
    pyarrow.parquet.write_table(table, path, row_group_size=group)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "_BATCH_RECORDS", batch)
        groups = pyarrow.parquet.ParquetFile(path).num_row_groups
        middle = groups // 2
        found = [
            number
            for start, stop in ((0, middle), (middle, groups))
            for each in FORMATS["parquet"].batches(path, start, stop, Wanted(["number"]))
            for number in each["number"].to_pylist()
        ]
    assert found == list(range(rows))
