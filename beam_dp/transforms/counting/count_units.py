"""Counts privacy units by their numbers of records, in one pass over the records."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.secret.encoding.batch import from_bytes
from beam_dp.secret.encoding.records import EncodedBatch
from beam_dp.secret.summaries.records_per_unit import UnitWords, levels_counter, levels_of_units
from beam_dp.transforms.counting.limit_contributions import PARTITIONS, PartitionUnits, send_as_one
from beam_dp.transforms.counting.summarise import EncodeRecords, Summarise
from beam_dp.transforms.errors import withhold_messages
from beam_dp.transforms.reading.records import refuse_windows


@dataclasses.dataclass(eq=False, repr=False)
class CountUnits(beam.PTransform):
    """Counts the units in each level of ``record_levels(most)``, by their numbers of records.

    Records outside the declared attributes and records without a unit are silently left out. Units
    are shuffled once, as fingerprints with the number of their records in a bundle.

    Privacy: a unit is in one level or, without records, in none, whatever it has in its records.

    Output: shards for ``levels_of_shards``, as secret as the records.
    """

    declared: Domain
    privacy_unit: str
    most: int

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[tuple[int, bytes]]:
        """Adds up the records of each unit, then counts units."""
        refuse_windows(records)
        words = UnitWords()
        send = functools.partial(send_as_one, words)
        partition = beam.ParDo(PartitionUnits(words, PARTITIONS, send))
        levels = beam.ParDo(_Levels(self.most))
        return (
            records
            | "Encode" >> EncodeRecords(self.declared, self.privacy_unit, as_cells=False)
            | "Partition" >> partition.with_output_types(tuple[int, bytes])
            | "Group units" >> beam.GroupByKey()
            | "Levels" >> levels.with_output_types(EncodedBatch)
            | "Summarise" >> Summarise(levels_counter(self.most))
        )


def levels_of_shards(most: int, shards: Iterable[tuple[int, bytes]]) -> NDArray[np.int64]:
    """Returns the number of units in each level from the shards of ``CountUnits``."""
    return levels_counter(most).from_shards(shards).counts


@dataclasses.dataclass(eq=False, repr=False)
class _Levels(beam.DoFn):
    most: int

    @withhold_messages
    def process(self, partition: tuple[int, Iterable[bytes]]) -> Iterator[EncodedBatch]:
        units, _, counts = from_bytes(UnitWords(), partition[1])
        return iter([EncodedBatch(cells=levels_of_units(units, counts, self.most))])
