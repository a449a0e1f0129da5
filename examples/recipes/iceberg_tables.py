"""A release of an Iceberg table in a Beam pipeline, without Java, written back as a table.

    pip install 'pyiceberg[sql-sqlite]'
    python made_up.py && python iceberg_tables.py

The catalogue is a SQLite file here; any other of pyiceberg works the same.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask

import beam_dp as dp

WAREHOUSE = pathlib.Path("warehouse").resolve()
WAREHOUSE.mkdir(exist_ok=True)
catalog = SqlCatalog("local", uri=f"sqlite:///{WAREHOUSE}/catalog.db", warehouse=str(WAREHOUSE))
catalog.create_namespace("clinic")
made_up = pq.read_table("visits.parquet")
table = catalog.create_table("clinic.visits", schema=made_up.schema)
for half in (made_up.slice(0, 8000), made_up.slice(8000)):
    table.append(half)
table.delete("age >= 65")

# A snapshot never changes, so a worker that reads a file again reads the same rows.
domain = dp.read_domain("visits.json")
columns = ("person_id", *domain.names)
scan = table.scan(selected_fields=columns, snapshot_id=table.current_snapshot().snapshot_id)
metadata, files, schema = table.metadata, table.io, scan.projection()


def batches(task: FileScanTask) -> Iterator[pa.RecordBatch]:
    """Reads one data file, without the rows that were deleted since."""
    yield from ArrowScan(metadata, files, schema, AlwaysTrue()).to_record_batches([task])


guarantee = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "person_id", max_records_per_unit=2)
with beam.Pipeline(runner="FnApiRunner") as pipeline:
    (
        pipeline
        | beam.Create(list(scan.plan_files()))
        | beam.FlatMap(batches)
        | dp.ReleaseSyntheticDatabase(domain, dp.marginals(domain, ways=2), guarantee)
        | dp.WriteRelease("out/iceberg")
    )
release = dp.read_release("out/iceberg", kind=dp.SyntheticDatabase)
copy = release.to_arrow()
catalog.create_table("clinic.visits_copy", schema=copy.schema).append(copy)
print(release.query().group_by("sex").count())
print(f"{catalog.load_table('clinic.visits_copy').scan().count():,} rows in clinic.visits_copy")
