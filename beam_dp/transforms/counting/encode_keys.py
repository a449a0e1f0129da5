"""The transform from records to weighted universe elements."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from beam_dp.checks import check_choice
from beam_dp.encoding.columns import column_of
from beam_dp.encoding.key_batch import KeyBatch
from beam_dp.encoding.keys import clamped_numbers, key_elements
from beam_dp.encoding.units import unit_fingerprints
from beam_dp.errors import InputError
from beam_dp.hashing.keys import HashKey
from beam_dp.privacy.guarantee import RECORD
from beam_dp.queries.sparse import KEY_TYPES, KeyType
from beam_dp.transforms.errors import withhold_messages
from beam_dp.transforms.reading.records import RecordBatches


@dataclasses.dataclass(frozen=True)
class KeyColumns:
    """Which columns of records make weighted elements; public.

    Args:
        key: the column of keys.
        key_type: what the keys are: ``text``, ``bytes`` or ``integer``; see
            ``encoding.keys.key_elements``.
        weight: the column of whole weights; None where every record weighs 1.

    Raises:
        InputError: if the type is not known, or one column is to be both.
    """

    key: str
    key_type: KeyType = "text"
    weight: str | None = None

    def __post_init__(self) -> None:
        check_choice("key_type", self.key_type, KEY_TYPES)
        if self.weight == self.key:
            raise InputError("weight", self.weight, "must be another column than the key's")


class EncodeKeys(beam.PTransform):
    """Encodes records as elements of a huge universe, with weights and privacy units.

    A record without a key, a weight or a unit is left out, silently, and so is one of weight 0:
    how many there are is private. This comes before contributions are limited, as in
    ``EncodeRecords``.

    Args:
        columns: which columns to read.
        max_weight: weights are moved into 0..max_weight.
        hash_key: public, drawn before any record is read.
        privacy_unit: the column that names the unit, or ``"record"``.

    Output: a collection of ``KeyBatch``. It is as secret as the records.
    """

    def __init__(
        self, columns: KeyColumns, max_weight: int, hash_key: HashKey, privacy_unit: str
    ) -> None:
        super().__init__()
        self.columns = columns
        self.privacy_unit = privacy_unit
        self._encode = _Encode(columns, max_weight, hash_key, privacy_unit)

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[KeyBatch]:
        """Batches what is not batched, then encodes."""
        needed = {self.columns.key: "key"}
        if self.columns.weight is not None:
            needed[self.columns.weight] = "weight"
        return (
            records
            | "Batches" >> RecordBatches(needed, self.privacy_unit)
            | "Encode" >> beam.ParDo(self._encode).with_output_types(KeyBatch)
        )


class _Encode(beam.DoFn):
    def __init__(
        self, columns: KeyColumns, max_weight: int, hash_key: HashKey, privacy_unit: str
    ) -> None:
        self.columns = columns
        self.max_weight = max_weight
        self.hash_key = hash_key
        self.privacy_unit = privacy_unit

    @withhold_messages
    def process(self, batch: pa.RecordBatch) -> Iterator[KeyBatch]:
        return iter([self._encoded(batch)])

    def _encoded(self, batch: pa.RecordBatch) -> KeyBatch:
        column = column_of(batch, self.columns.key)
        keys, keep = key_elements(column, self.columns.key_type, self.hash_key)
        if self.columns.weight is None:
            weights = np.ones(len(keys), np.int64)
        else:
            weights, valid = clamped_numbers(column_of(batch, self.columns.weight), self.max_weight)
            keep = keep & valid & (weights > 0)
        if self.privacy_unit == RECORD:
            return KeyBatch(keys[keep], weights[keep])
        units, valid = unit_fingerprints(column_of(batch, self.privacy_unit))
        kept = np.flatnonzero(keep & valid)
        return KeyBatch(keys[kept], weights[kept], units.take(kept, axis=1))
