"""One unit is one unit in every file, however the integer that names it was written."""

from __future__ import annotations

import gzip
import pathlib
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet
from fakes import COLLECTED, collect, pipeline, write_avro
from versions import since

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.encoding.units import unit_fingerprints
from beam_dp.transforms import EncodeRecords, ReadRecords
from beam_dp.transforms.counting.limit_contributions import LimitContributions
from beam_dp.transforms.reading.formats import FORMATS, Wanted, format_of

IDS = [7, 2**53 + 1, -(2**63), 2**63 - 1]
TEXTS = [f"{each}.0" for each in IDS]


def units_of(path: pathlib.Path) -> set[tuple[int, int]]:
    found: set[tuple[int, int]] = set()
    file_format = format_of(str(path))
    assert file_format is not None
    for start, stop in file_format.ranges(str(path), path.stat().st_size):
        for batch in file_format.batches(str(path), start, stop, Wanted(["id"])):
            units, valid = unit_fingerprints(batch.column(0))
            assert valid.all()
            found |= set(map(tuple, units.T.tolist()))
    return found


@since("pyarrow", "20")  # earlier ones write no views
def test_unit_is_the_same_in_all_files(tmp_path):
    contents = {
        "texts.csv": "id,x\n" + "".join(f"{text},1\n" for text in TEXTS),
        "integers.csv": "id,x\n" + "".join(f"{each},1\n" for each in IDS),
        "quoted.csv": "id,x\n" + "".join(f'"{text}",1\n' for text in TEXTS),
        "odd.csv": "id,x\n" + "".join(f'{text},a"b\n' for text in TEXTS),
    }
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "texts.csv.gz").write_bytes(gzip.compress(contents["texts.csv"].encode()))
    columns: dict[str, pa.Array] = {
        str(kind): pa.array(TEXTS).cast(pa.binary()).cast(kind)
        for kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    }
    columns |= {"views": pa.array(TEXTS, pa.string_view()), "integers": pa.array(IDS)}
    columns |= {"dictionary": pa.array(TEXTS).dictionary_encode()}
    for name, column in columns.items():
        pyarrow.parquet.write_table(pa.table({"id": column}), tmp_path / f"{name}.parquet")
    kinds: dict[str, Any] = {
        "string": ("string", TEXTS),
        "bytes": ("bytes", [text.encode() for text in TEXTS]),
        "long": ("long", IDS),
        "union": (["null", "long", "double", "string"], [7.0, *IDS[1:3], TEXTS[3]]),
    }
    for name, (kind, values) in kinds.items():
        write_avro(tmp_path, kind, values, name, column="id")
    files = sorted(tmp_path.iterdir())
    assert len(files) == 16 and {format_of(str(path)) for path in files} == {*FORMATS.values()}
    expected = units_of(tmp_path / "integers.csv")
    assert len(expected) == 4
    assert {path.name: units_of(path) for path in files} == {path.name: expected for path in files}


def test_unit_in_two_files_is_limited_once(tmp_path):
    """As pandas writes a column of integers: with a missing value they all become floats."""
    (tmp_path / "a.csv").write_text("id,age\n7,1\n8,2\n")
    (tmp_path / "b.csv").write_text("id,age\n7.0,3\n,4\n9.0,5\n")
    domain = Domain((IntegerAttribute("age", 0, 9),))
    with pipeline() as p:
        encoded = p | ReadRecords(f"{tmp_path}/*.csv") | EncodeRecords(domain, "id", as_cells=True)
        _ = encoded | LimitContributions(domain, 1, cost_limit=None) | collect("kept")
    kept = np.concatenate([batch.cells for batch in COLLECTED["kept"]])
    assert len(kept) == 3 and {2, 5} <= set(kept.tolist())


def test_leaves_out_arrow_records_whose_unit_may_be_an_address():
    """A pipeline learns the type in a worker, where it refuses nothing."""
    domain = Domain((IntegerAttribute("x", 0, 9),))
    addresses = pa.array([number.to_bytes(8, "little") for number in range(5)], pa.binary(8))
    tables = [pa.table({"x": [1] * 5, "id": each}) for each in (addresses, range(5))]
    with pipeline() as p:
        encode = EncodeRecords(domain, "id", as_cells=True)
        _ = p | beam.Create(tables) | encode | collect("kept")
    assert sum(len(each.cells) for each in COLLECTED["kept"]) == 5
