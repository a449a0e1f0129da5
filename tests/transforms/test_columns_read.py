"""Which columns of a file are read: those that releases ask for, or all that somebody may want."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
from fakes import COLLECTED, collect, pipeline, reading

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.transforms import EncodeRecords, ReadRecords

AGE = Domain((IntegerAttribute("age", 0, 9),))
HOURS = Domain((IntegerAttribute("hours", 0, 9),))


@pytest.fixture
def path(tmp_path: pathlib.Path) -> str:
    lines = [f"{i},0{i % 10},{i % 10}" for i in range(20)]
    (tmp_path / "people.csv").write_text("\n".join(["person,age,hours", *lines, ""]))
    return str(tmp_path / "people.csv")


def encode(domain: Domain = AGE, unit: str = "record") -> beam.PTransform:
    return f"Encode {domain.names} {unit}" >> EncodeRecords(domain, unit, as_cells=True)


def own_step(records: beam.PCollection[Any]) -> Any:
    return records | "Own step" >> beam.Map(lambda batch: batch)


def test_releases_on_a_reader_read_what_they_ask_for(path: str) -> None:
    p = pipeline()
    records = p | ReadRecords(path)
    _ = records | encode()
    assert reading(p).columns == ["age"] and reading(p).integers == {"age"}
    _ = records | encode(HOURS, unit="person")
    assert reading(p).columns == ["age", "hours", "person"]
    # A unit is the text as it was written, also where another release takes it for a number.
    _ = records | encode(HOURS, unit="age")
    assert reading(p).columns == ["age", "hours", "person"]
    assert reading(p).integers == {"hours"}


def test_without_a_release_all_columns_are_read(path: str) -> None:
    p = pipeline()
    records = p | ReadRecords(path)
    assert reading(p).columns is None
    _ = own_step(records)
    assert reading(p).columns is None and not reading(p).integers


CONSUMERS: dict[str, Callable[[Any], Any]] = {
    "a step": own_step,
    "a composite": lambda records: records | "Sum" >> beam.CombineGlobally(lambda batches: None),
    "a flatten": lambda records: (records, records) | beam.Flatten(),
    "a side input": lambda records: (
        records.pipeline
        | beam.Create([None])
        | beam.Map(lambda _, batches: None, beam.pvalue.AsList(records))
    ),
    "a windowing": lambda records: records | beam.WindowInto(beam.window.FixedWindows(60)),
}


@pytest.mark.mostly_slow(one_in=2)
@pytest.mark.parametrize("comes_first", [True, False])
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_beside_any_other_consumer_all_columns_are_read_as_texts(
    path: str, consumer: str, comes_first: bool
) -> None:
    p = pipeline()
    records = p | ReadRecords(path)
    if comes_first:
        CONSUMERS[consumer](records)
    _ = records | encode()
    if not comes_first:
        CONSUMERS[consumer](records)
    assert reading(p).columns is None and not reading(p).integers


def test_columns_that_were_named_are_read_beside_any_consumer(path: str) -> None:
    p = pipeline()
    records = p | ReadRecords(path, columns=["hours", "age"])
    _ = records | encode()
    assert reading(p).columns == ["hours", "age"]
    own_step(records)
    assert reading(p).columns == ["hours", "age"] and not reading(p).integers


@pytest.mark.slow
def test_a_release_behind_a_step_finds_its_columns_beside_another_release(path: str) -> None:
    with pipeline() as p:
        records = p | ReadRecords(path)
        _ = records | encode() | collect("ages")
        _ = own_step(records) | encode(HOURS, unit="age") | collect("hours")
    assert [batch.cells.tolist() for batch in COLLECTED["ages"]] == [[*range(10), *range(10)]]
    (batch,) = COLLECTED["hours"]
    assert batch.cells.tolist() == [*range(10), *range(10)]
    texts = [{"age": f"0{i}", "hours": 1} for i in range(10)]
    assert batch.units.T.tolist()[:10] == [unit_of(each) for each in texts]


def unit_of(record: dict[str, Any]) -> list[int]:
    (batch,) = [record] | encode(HOURS, unit="age")
    return batch.units[:, 0].tolist()


def test_a_column_that_a_reader_lacks_is_refused(path: str) -> None:
    p = pipeline()
    records = p | ReadRecords(path)
    with pytest.raises(InputError, match=r"privacy_unit: 'persn' .*'person'"):
        _ = records | encode(unit="persn")
    fewer = p | "Fewer" >> ReadRecords(path, columns=["age"])
    with pytest.raises(InputError, match=r"domain: 'hours' .*that are read"):
        _ = fewer | encode(HOURS)
