"""The limit on what a unit contributes to a sketch: its records, and its sketch's norm."""

from __future__ import annotations

import math
from collections.abc import Iterator

import apache_beam as beam
import numpy as np
from numpy.typing import NDArray

from beam_dp.encoding.key_batch import KeyBatch
from beam_dp.encoding.words import Columns, KeyWords
from beam_dp.hashing.projections import BlockSigns
from beam_dp.mechanisms.sketches.plan import SparsePlan
from beam_dp.privacy.guarantee import RECORD
from beam_dp.summaries.unit_sketches import within_squared_norm
from beam_dp.transforms.counting.limit_contributions import limited
from beam_dp.transforms.errors import withhold_messages


class LimitKeys(beam.PTransform):
    """Keeps of each unit what a plan allows: k records, and a sketch of limited norm.

    Privacy: what stays of a unit is a function of its own records alone, whatever the others are:
    at most k of them (``LimitContributions``), and of these, where the plan has a
    ``max_squared_norm``, those up to the first that would take the unit's own sketch beyond it
    (``within_squared_norm``), in the order of their elements.

    Input: ``KeyBatch``, with units where the unit is not the record. Output: without units.
    """

    def __init__(self, plan: SparsePlan) -> None:
        super().__init__()
        self.plan = plan

    def expand(self, records: beam.PCollection[KeyBatch]) -> beam.PCollection[KeyBatch]:
        """Limits the records of units together with the norms of their sketches."""
        guarantee, sketch = self.plan.guarantee, self.plan.sketch
        words = KeyWords()
        if sketch is not None and sketch.max_squared_norm is not None:
            if guarantee.privacy_unit == RECORD:
                # A record is in each row once.
                heaviest = math.isqrt(sketch.max_squared_norm // sketch.num_blocks)
                leave_out = beam.ParDo(_LeaveOutHeavy(heaviest))
                return records | "Limit norm" >> leave_out.with_output_types(KeyBatch)
            signs = sketch.signs(self.plan.hash_key)
            assert isinstance(signs, BlockSigns)
            row_width = sketch.projection_width // sketch.num_blocks
            words = _ClippedKeyWords(signs, row_width, sketch.max_squared_norm)
        return limited(records, words, guarantee, "Limit records", unit_costs=self.plan.unit_costs)


class _ClippedKeyWords(KeyWords):
    """Weighted elements, of which each unit keeps no more than its sketch may hold."""

    def __init__(self, signs: BlockSigns, row_width: int, max_squared_norm: int) -> None:
        self.signs = signs
        self.row_width = row_width
        self.max_squared_norm = max_squared_norm

    def to_batch(self, columns: Columns, units: NDArray[np.uint64]) -> KeyBatch:
        keys, weights = columns
        order = np.lexsort((weights, keys, units[1], units[0]))
        units = units[:, order]
        new_unit = (units[:, 1:] != units[:, :-1]).any(axis=0)
        batch = super().to_batch([keys[order], weights[order]], units)
        return within_squared_norm(
            batch,
            np.concatenate(([0], np.cumsum(new_unit)))[: len(order)],
            self.signs,
            self.row_width,
            self.max_squared_norm,
        )


class _LeaveOutHeavy(beam.DoFn):
    def __init__(self, heaviest: int) -> None:
        self.heaviest = heaviest

    @withhold_messages
    def process(self, batch: KeyBatch) -> Iterator[KeyBatch]:
        kept = batch.weights <= self.heaviest
        return iter([KeyBatch(batch.keys[kept], batch.weights[kept])])
