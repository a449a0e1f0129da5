"""Several columns of one name are refused: which of them counts must not depend on their order."""

from __future__ import annotations

import json
from typing import Any

import apache_beam as beam
import pandas as pd
import pyarrow as pa
import pytest
from fakes import outputs

from beam_dp.domain.attributes import CategoricalAttribute
from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.encoding.open_values import OpenColumns, encode_values
from beam_dp.encoding.records import encode_cells, encode_records
from beam_dp.encoding.tables import frame_batch
from beam_dp.errors import UnreadableError
from beam_dp.transforms import EncodeRecords
from beam_dp.transforms.errors import FileError
from beam_dp.transforms.reading.avro_blocks import parse_schema

DOMAIN = Domain((IntegerAttribute("age", 0, 9),))
PLAIN = pa.table({"who": [1, 2], "age": [3, 4]})
REPEATED = PLAIN.append_column("who", pa.array([7, 7]))


def untyped(elements: list[Any]) -> beam.PTransform:
    return beam.FlatMap(lambda _: elements).with_output_types(Any)


@pytest.mark.job
@pytest.mark.parametrize("is_frame", [False, True])
def test_pipeline_stops_with_the_name_of_a_unit_that_one_batch_of_three_repeats(is_frame):
    """Read as missing, the unit would leave out every record of the batch after payment."""
    batches = [table.to_pandas() if is_frame else table for table in (PLAIN, REPEATED, PLAIN)]
    encode = EncodeRecords(DOMAIN, "who", as_cells=True)
    with pytest.raises(Exception, match=r"column.*: 'who' .* only one column"):
        outputs({"repeated": lambda p: p | beam.Create([0]) | untyped(batches) | encode})


def test_no_step_chooses_between_columns_of_one_name():
    (batch,) = REPEATED.append_column("age", PLAIN["age"]).to_batches()
    city = CategoricalAttribute("age", ("x",), other=True)
    for read in (
        lambda: encode_cells(DOMAIN, batch),
        lambda: encode_records(Domain(()), "who", False, batch),
        lambda: list(encode_values(OpenColumns(None, [city], []), "record", batch)),
        lambda: frame_batch(batch.to_pandas(), ["age"]),
        lambda: frame_batch(PLAIN.to_pandas().set_index("who", drop=False), ["who"]),
    ):
        with pytest.raises(UnreadableError, match="only one column"):
            read()


def test_repeated_columns_that_nobody_names_are_no_fault():
    frame = pd.concat([PLAIN.to_pandas(), PLAIN.to_pandas()[["who"]]], axis=1)
    for batch in (REPEATED.to_batches()[0], frame_batch(frame, ["age"])):
        assert encode_cells(DOMAIN, batch).tolist() == [3, 4]


def test_avro_schema_with_fields_of_one_name_is_refused():
    field = {"name": "who", "type": "long"}
    schema = {"type": "record", "name": "Visit", "fields": [field, field]}
    with pytest.raises(FileError, match="'who' is repeated"):
        parse_schema(json.dumps(schema).encode())
