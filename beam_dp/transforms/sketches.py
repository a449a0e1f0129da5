"""The transforms that limit the keys of a unit, and release a sketch of them."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_is
from beam_dp.errors import InputError
from beam_dp.hashing.projections import BlockSigns
from beam_dp.mechanisms.resources import worker_bytes
from beam_dp.mechanisms.sketches.plan import SparsePlan, SparseSummary, release_sparse
from beam_dp.privacy.guarantee import RECORD
from beam_dp.privacy.ledger.entries import Token
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.releases.sketches.release import SparseRelease
from beam_dp.secret.encoding.batch import Columns, KeyBatch, KeyWords, NamedKeyWords
from beam_dp.secret.encoding.keys import KeyColumns
from beam_dp.secret.summaries.projection import ProjectionAccumulator, within_squared_norm
from beam_dp.transforms.counting import count_keys, summarise
from beam_dp.transforms.counting.count_keys import KEYS, TEXTS, EncodeKeys
from beam_dp.transforms.counting.limit_contributions import limited
from beam_dp.transforms.drawing.one_worker import ReleaseShard, draw_release
from beam_dp.transforms.job_page import ShowsPromise, withhold_messages
from beam_dp.transforms.reading.records import refuse_windows


class LimitKeys(beam.PTransform):
    """Keeps at most k records of each unit, and a sketch of limited norm, as the plan requires.

    Privacy: which of a unit's records are kept depends only on the unit's own records. At most k
    records are kept (``LimitContributions``). If the plan has a ``max_squared_norm``, these records
    are kept, in the order of elements, until the first record that would take the unit's own sketch
    beyond that norm (``within_squared_norm``).

    Input: ``KeyBatch``, with units unless the unit is the record. Output: ``KeyBatch`` without
    units.
    """

    def __init__(self, plan: SparsePlan) -> None:
        super().__init__()
        self.plan = plan

    def expand(self, records: beam.PCollection[KeyBatch]) -> beam.PCollection[KeyBatch]:
        """Limits the records of units together with the norms of their sketches."""
        guarantee, sketch = self.plan.guarantee, self.plan.sketch
        words = NamedKeyWords() if self.plan.lists_keys else KeyWords()
        if sketch is not None and sketch.max_squared_norm is not None:
            if guarantee.privacy_unit == RECORD:
                # A record of weight w adds w^2 to the squared norm of each row of the sketch.
                heaviest = math.isqrt(sketch.max_squared_norm // sketch.num_blocks)
                leave_out = beam.ParDo(_LeaveOutHeavy(heaviest))
                return records | "Limit norm" >> leave_out.with_output_types(KeyBatch)
            signs = sketch.signs(self.plan.hash_key)
            assert isinstance(signs, BlockSigns)
            row_width = sketch.projection_width // sketch.num_blocks
            words = _ClippedKeyWords(signs, row_width, sketch.max_squared_norm)
        return limited(records, words, guarantee, "Limit records", unit_costs=self.plan.unit_costs)


class _ClippedKeyWords(KeyWords):
    """Weighted elements; reading them back limits the norm of each unit's sketch."""

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


class ReleaseProjection(ShowsPromise):
    """Releases one artifact that answers any sparse query over a huge universe.

    Privacy: the output satisfies ``plan.guarantee`` for records whose unit is
    ``plan.guarantee.privacy_unit``. The distributed part limits the contributions of each unit, and
    computes exact sums: of the columns of a public projection, of the weights of each element, or
    both. The sums are as secret as the records. Noise is drawn once, by one step after the last
    combine, and one draw is committed, as in ``ReleaseSyntheticDatabase``.

    No record makes the transform fail, and no log or metric depends on records.

    Args:
        plan: a plan from the method ``plan`` of ``SparseProject``, ``CountSketch``,
            ``StabilityHistogram`` or ``HybridSketch``. The hash key is part of the plan and is
            drawn before any record is read.
        columns: the columns of the records to read.
        ledger_token: the token from ``Ledger.spend`` that paid for this release; the card then
            names the ledger entry.

    Raises:
        InputError: if the token paid for another release; when applied, if the records are windowed
            or unbounded, or lack a column.

    Input: Arrow batches (``ReadRecords``), pandas frames, dicts, or rows with a schema.

    Output: shards of one serialised release, for ``WriteRelease``. Empty input gives a release of
    the same shape as any other input.
    """

    plan: SparsePlan

    def __init__(
        self, plan: SparsePlan, columns: KeyColumns, ledger_token: Token | None = None
    ) -> None:
        super().__init__()
        check_is("plan", plan, SparsePlan)
        check_is("columns", columns, KeyColumns)
        if columns.list_keys and plan.histogram is None:
            condition = "must come with counts of keys: stability_histogram or hybrid_sketch"
            raise InputError("list_keys", True, condition)
        self.plan = dataclasses.replace(plan, key=columns.stated()).paid_by(ledger_token)
        self.columns = columns

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[ReleaseShard]:
        """Encodes records, limits contributions, projects and counts, and draws the release."""
        refuse_windows(records)
        plan = self.plan
        encode = EncodeKeys(
            self.columns, plan.max_weight, plan.hash_key, plan.guarantee.privacy_unit
        )
        encoded, texts = records | "Encode" >> encode, None
        if self.columns.list_keys:
            encoded, texts = encoded[KEYS], encoded[TEXTS]
        kept = encoded | "Limit" >> LimitKeys(plan)
        sums = counts = None
        if plan.sketch is not None:
            project = summarise.Summarise(ProjectionAccumulator(plan.sketch.signs(plan.hash_key)))
            sums = kept | "Project" >> project
        if texts is not None:
            counts = (kept, texts) | "Count" >> count_keys.CountListedKeys()
        elif plan.histogram is not None:
            counts = kept | "Count" >> count_keys.CountElements()
        release, min_ram = (
            functools.partial(_released_sketch, plan),
            worker_bytes(plan, plan.num_cells),
        )
        return draw_release(records.pipeline, release, [sums, counts], min_ram)


def _released_sketch(
    plan: SparsePlan,
    noise: NoiseSource,
    sums: Iterable[tuple[int, bytes]] | None,
    counts: Iterable[bytes] | None,
) -> SparseRelease:
    """Runs the mechanism on the sums."""
    projection = elements = None
    if plan.sketch is not None and sums is not None:
        projection = ProjectionAccumulator(plan.sketch.signs(plan.hash_key)).from_shards(sums)
    if counts is not None:
        read = count_keys.listed_counts if plan.lists_keys else count_keys.counts_of_shards
        elements = read(counts)
    return release_sparse(plan, SparseSummary(projection, elements), noise)
