"""The transforms that limit the number of each privacy unit's records, or their sketch's norm."""

from __future__ import annotations

import dataclasses
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import DirectOptions
from apache_beam.utils.windowed_value import WindowedValue

from beam_dp.domain.universe import Domain
from beam_dp.privacy.guarantee import RECORD, Guarantee
from beam_dp.privacy.unit_costs import UnitCosts
from beam_dp.secret.encoding.batch import (
    Columns,
    CostLimit,
    RecordWords,
    Words,
    from_bytes,
    record_bytes,
    to_bytes,
)
from beam_dp.secret.encoding.contributions import add_identical, select_records, split_by_unit
from beam_dp.transforms.job_page import withhold_messages
from beam_dp.transforms.reading.records import refuse_windows

# The largest size of an element, even if one unit has all records or a record has many words.
_ELEMENT_BYTES = 2**23
# The number of keys of a shuffle, a power of two: a worker must have enough memory for a partition.
PARTITIONS = 256
_BUFFERED_RECORDS = 2**18
_BATCH_RECORDS = 2**16  # counting many tables takes twice as long with short batches
Send = Callable[[int, np.ndarray[Any, Any], Columns, np.ndarray[Any, Any]], Iterable[WindowedValue]]


class LimitContributions(beam.PTransform):
    """Keeps at most k records of each privacy unit.

    ``cost_limit``: the cost limit of each unit; None to limit only the number of records.

    Privacy: adding or removing one unit adds or removes at most k records of the output,
    regardless of other units, because the kept records of a unit are a function of the unit's own
    records (``select_records``). A retried bundle keeps the same records.

    Records are shuffled once, as columns, keyed by a hash of their unit.

    Input: batches with units (``EncodedBatch``, ``KeyBatch``). Output: batches without units.
    """

    def __init__(
        self,
        records: Domain | Words,
        max_records_per_unit: int,
        *,
        cost_limit: CostLimit | None,
    ) -> None:
        super().__init__()
        self.words = RecordWords(records) if isinstance(records, Domain) else records
        self.max_records_per_unit = max_records_per_unit
        self.cost_limit = cost_limit

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[Any]:
        """Partitions records by unit, groups partitions, and selects records."""
        refuse_windows(records)
        rows = UnitRows.of(self.words, records.pipeline)
        partition = beam.ParDo(PartitionUnits(self.words, PARTITIONS, rows.send))
        select = beam.ParDo(_Select(rows, self.max_records_per_unit, self.cost_limit))
        return (
            records
            | "Partition" >> partition.with_output_types(tuple[int, bytes])
            | "Group units" >> beam.GroupByKey()
            | "Select" >> select.with_output_types(records.element_type)
        )


def limited(
    records: beam.PCollection[Any],
    kept_as: Domain | Words,
    guarantee: Guarantee,
    label: str = "Limit",
    *,
    unit_costs: UnitCosts | None,
) -> beam.PCollection[Any]:
    """Returns at most k records of each privacy unit; all records if the unit is the record."""
    # ``unit_costs``: the plan's cost limits, applied to each unit as well; None unless the records
    # belong to a domain.
    if guarantee.privacy_unit == RECORD:
        return records
    cost_limit = None
    if unit_costs is not None:
        assert isinstance(kept_as, Domain)
        cost_limit = CostLimit(RecordWords(kept_as), unit_costs)
    limit = LimitContributions(kept_as, guarantee.max_records_per_unit, cost_limit=cost_limit)
    return records | label >> limit


@dataclasses.dataclass(eq=False, repr=False)
class PartitionUnits(beam.DoFn):
    """Sends records with their units to the partition of the unit, in long columns.

    If a bundle has many identical records, they are sent as one record per unit with a count.
    """

    words: Words
    num_partitions: int
    send: Send

    def start_bundle(self) -> None:
        """Starts with an empty buffer."""
        self._rows: list[tuple[np.ndarray, Columns]] = []  # units, [*words, counts]
        self._num_buffered = 0

    @withhold_messages
    def process(self, batch: Any) -> Iterable[WindowedValue]:
        """Buffers a batch; returns elements once the buffer contains many records."""
        assert batch.units is not None
        num_records = batch.units.shape[1]
        columns = [*self.words.from_batch(batch), np.ones(num_records, np.int64)]
        self._rows.append((batch.units, columns))
        self._num_buffered += num_records
        if self._num_buffered < _BUFFERED_RECORDS:
            return ()
        self._add_up()
        # Continues buffering if many records were identical; otherwise sends the buffer.
        return self._flush() if 2 * self._num_buffered >= _BUFFERED_RECORDS else ()

    @withhold_messages
    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Returns elements for the records still in the buffer."""
        if self._rows:
            self._add_up()
        return iter(self._flush())

    def _add_up(self) -> None:
        all_units, all_columns = zip(*self._rows, strict=True)
        *words, counts = map(np.concatenate, zip(*all_columns, strict=True))
        units, words, counts = add_identical(np.concatenate(all_units, axis=1), words, counts)
        self._rows = [(units, [*words, counts])]
        self._num_buffered = counts.size

    def _flush(self) -> list[WindowedValue]:
        elements: list[WindowedValue] = []
        num_records = min(_BUFFERED_RECORDS, _ELEMENT_BYTES // record_bytes(self.words))
        for units, columns in self._rows:
            for start in range(0, units.shape[1], num_records):
                part = slice(start, start + num_records)
                for number, units_here, (*words, counts) in split_by_unit(
                    units[:, part], [column[part] for column in columns], self.num_partitions
                ):
                    elements += self.send(number, units_here, words, counts)
        self.start_bundle()
        return elements


class _Kept(dict[int, bytes]):
    """Rows that stay in this process while Beam groups their numbers. Secret."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count()

    def keep(self, rows: bytes) -> bytes:
        """Keeps rows; returns their number, which is shorter than any rows."""
        number = next(self._numbers)
        self[number] = rows
        return number.to_bytes(_NUMBER_BYTES, "little")


_NUMBER_BYTES = 8
_KEPT: weakref.WeakKeyDictionary[beam.Pipeline, _Kept] = weakref.WeakKeyDictionary()
_KEPT_BY_NAME: weakref.WeakValueDictionary[str, _Kept] = weakref.WeakValueDictionary()


@dataclasses.dataclass(eq=False, repr=False)
class UnitRows:
    """Records with their units, on the way through a shuffle.

    Beam's local runner keeps up to five copies of what it shuffles. So it shuffles numbers, and the
    rows wait here, in one copy, unless it starts other processes or is told to repeat bundles. They
    go with the pipeline, so those of a job that failed do not stay.
    """

    words: Words
    name: str = ""  # where the rows wait; empty if they are shuffled

    @classmethod
    def of(cls, words: Words, pipeline: beam.Pipeline) -> UnitRows:
        """Returns the rows of a step of a pipeline."""
        runner, options = pipeline.runner, pipeline.options.view_as(DirectOptions)
        repeats = options.direct_runner_bundle_repeat or getattr(runner, "_bundle_repeat", 0)
        if type(runner).__name__ != "FnApiRunner" or repeats:
            return cls(words)
        kept = _KEPT.setdefault(pipeline, _Kept())
        name = str(id(kept))
        _KEPT_BY_NAME[name] = kept
        return cls(words, name)

    def send(
        self,
        number: int,
        units: np.ndarray[Any, Any],
        columns: Columns,
        counts: np.ndarray[Any, Any],
    ) -> list[WindowedValue]:
        """Returns the records of a partition as one element in the global window."""
        rows = to_bytes(self.words, units, columns, counts)
        kept = _KEPT_BY_NAME.get(self.name)  # another process has none
        sent = rows if kept is None else kept.keep(rows)
        return [beam.window.GlobalWindows.windowed_value((number, sent))]

    def received(
        self, sent: Iterable[bytes]
    ) -> tuple[np.ndarray[Any, Any], Columns, np.ndarray[Any, Any]]:
        """Returns the units, records and counts of all elements of a partition."""
        return from_bytes(self.words, map(self._rows, sent))

    def _rows(self, sent: bytes) -> bytes:
        if len(sent) > _NUMBER_BYTES:
            return sent
        return _KEPT_BY_NAME[self.name].pop(int.from_bytes(sent, "little"))


@dataclasses.dataclass(eq=False, repr=False)
class _Select(beam.DoFn):
    """Keeps at most k records per unit in a partition; batches records of several partitions."""

    rows: UnitRows
    max_records_per_unit: int
    cost_limit: CostLimit | None

    def start_bundle(self) -> None:
        self._kept: list[tuple[np.ndarray, Columns]] = []  # units and words
        self._num_kept = 0

    @withhold_messages
    def process(self, partition: tuple[int, Iterable[bytes]]) -> Iterable[Any]:
        units, words, counts = self.rows.received(partition[1])
        kept = select_records(units, words, counts, self.max_records_per_unit, self.cost_limit)
        self._kept.append((units[:, kept], [word[kept] for word in words]))
        self._num_kept += kept.size
        return [self._taken()] if self._num_kept >= _BATCH_RECORDS else ()

    @withhold_messages
    def finish_bundle(self) -> Iterator[WindowedValue]:
        return iter([beam.window.GlobalWindows.windowed_value(self._taken())] if self._kept else [])

    def _taken(self) -> Any:
        units, words = zip(*self._kept, strict=True)
        self.start_bundle()
        columns = [np.concatenate(column) for column in zip(*words, strict=True)]
        return self.rows.words.to_batch(columns, np.concatenate(units, axis=1))
