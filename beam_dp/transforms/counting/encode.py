"""The transforms from records to codes of a domain, and to weighted universe elements."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from beam_dp.checks import check_choice
from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.encoding.batch import KeyBatch
from beam_dp.encoding.keys import clamped_numbers, key_elements
from beam_dp.encoding.records import EncodedBatch, column_of, encode_all_records, encode_records
from beam_dp.encoding.units import unit_fingerprints
from beam_dp.errors import InputError
from beam_dp.hashing.keys import HashKey
from beam_dp.privacy.guarantee import RECORD
from beam_dp.queries.sparse import KEY_TYPES, KeyType
from beam_dp.queries.sparse_reader import KEY_RULE
from beam_dp.transforms.errors import withhold_messages
from beam_dp.transforms.reading.records import RecordBatches

INSIDE, LEFT_OUT = "inside", "left_out"


class EncodeRecords(beam.PTransform):
    """Encodes records as cells or codes of a domain, with their privacy units.

    Records outside the domain, and those without a unit, are left out, silently: how many
    there are is private. This comes before contributions are limited, so that a unit's
    records outside the domain do not push out those inside; what is left of a unit still
    depends on its own records alone.

    ``as_cells``: whether to encode as cell indices (the domain must have an index) or as codes.

    Output: ``EncodedBatch``, as secret as the records. With ``keep_left_out`` two collections,
    tagged ``INSIDE`` and ``LEFT_OUT``: the second is ``left_out_records``, without the records that
    have no unit, which nothing limits.
    """

    def __init__(
        self, domain: Domain, privacy_unit: str, *, as_cells: bool, keep_left_out: bool = False
    ) -> None:
        super().__init__()
        self.domain = domain
        self.privacy_unit = privacy_unit
        self.as_cells = as_cells
        self.keep_left_out = keep_left_out

    def expand(self, records: beam.PCollection[Any]) -> Any:
        """Collects rows into batches, then encodes."""
        batches = records | "Batches" >> DomainBatches(self.domain, self.privacy_unit)
        step = _Encode(self.domain, self.privacy_unit, self.as_cells, self.keep_left_out)
        encode = beam.ParDo(step).with_output_types(EncodedBatch)
        if not self.keep_left_out:
            return batches | "Encode" >> encode
        encoded = batches | "Encode" >> encode.with_outputs(LEFT_OUT, main=INSIDE)
        encoded[LEFT_OUT].element_type = EncodedBatch
        return encoded


class DomainBatches(RecordBatches):
    """``RecordBatches`` of a domain, the privacy unit and other columns, each with its argument."""

    def __init__(
        self,
        domain: Domain,
        privacy_unit: str,
        others: Mapping[str, str] | None = None,
        *,
        may_be_unbounded: bool = False,
    ) -> None:
        needed = {**dict.fromkeys(domain.names, "domain"), **(others or {})}
        # A unit is the text as it was written: 007 is not 7.
        integers = {
            attribute.name
            for attribute in domain
            if isinstance(attribute, IntegerAttribute) and attribute.name != privacy_unit
        }
        super().__init__(needed, privacy_unit, integers, domain, may_be_unbounded=may_be_unbounded)


class _Encode(beam.DoFn):
    def __init__(
        self, domain: Domain, privacy_unit: str, as_cells: bool, all_records: bool
    ) -> None:
        self.how = domain, privacy_unit, as_cells
        self.all_records = all_records

    @withhold_messages
    def process(self, batch: pa.RecordBatch) -> Iterator[Any]:
        if not self.all_records:
            return iter([encode_records(*self.how, batch)])
        inside, left_out = encode_all_records(*self.how, batch)
        return iter([inside, beam.pvalue.TaggedOutput(LEFT_OUT, left_out)])


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

    def stated(self) -> dict[str, str | int | None]:
        """Returns what cards say of them, and of the rule by which keys are read."""
        return {**dataclasses.asdict(self), "rule": KEY_RULE}


class EncodeKeys(beam.PTransform):
    """Encodes records as elements of a huge universe, with weights and privacy units.

    A record without a key, a weight or a unit, or with weight 0, is left out, silently: how many
    there are is private. This comes before contributions are limited, as in ``EncodeRecords``.
    Weights are clamped to 0..max_weight; the hash key is public, drawn before any record is read.

    Output: ``KeyBatch``, as secret as the records.
    """

    def __init__(
        self, columns: KeyColumns, max_weight: int, hash_key: HashKey, privacy_unit: str
    ) -> None:
        super().__init__()
        self.columns = columns
        self.privacy_unit = privacy_unit
        self._encode = _EncodeKeys(columns, max_weight, hash_key, privacy_unit)

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[KeyBatch]:
        """Collects rows into batches, then encodes."""
        needed = {self.columns.key: "key"}
        if self.columns.weight is not None:
            needed[self.columns.weight] = "weight"
        return (
            records
            | "Batches" >> RecordBatches(needed, self.privacy_unit)
            | "Encode" >> beam.ParDo(self._encode).with_output_types(KeyBatch)
        )


class _EncodeKeys(beam.DoFn):
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
