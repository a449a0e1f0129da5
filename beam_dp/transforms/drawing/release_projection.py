"""The transform from records to a release for sparse queries."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any

import apache_beam as beam

from beam_dp.checks import check_is
from beam_dp.mechanisms.resources import worker_bytes
from beam_dp.mechanisms.sketches.plan import SparsePlan, SparseSummary, release_sparse
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.ledger.entries import Token
from beam_dp.releases.sketches.release import SparseRelease
from beam_dp.summaries.projection import ProjectionAccumulator
from beam_dp.transforms.counting.encode import EncodeKeys, KeyColumns
from beam_dp.transforms.counting.limit_contributions import LimitKeys
from beam_dp.transforms.counting.summarise import CountElements, Summarise, counts_of_shards
from beam_dp.transforms.drawing.one_worker import draw_release
from beam_dp.transforms.elements import ReleaseShard
from beam_dp.transforms.reading.records import refuse_windows


class ReleaseProjection(beam.PTransform):
    """Releases one artifact that answers any sparse query over a huge universe.

    Privacy: the output satisfies ``plan.guarantee`` for records whose unit is
    ``plan.guarantee.privacy_unit``. The distributed part limits what a unit contributes, and
    computes exact sums: of the columns of a public projection, of the weights of each element, or
    both. They are as secret as the records. Noise is drawn once, by one step after the last
    combine, and a draw is committed, as in ``ReleaseSyntheticDatabase``.

    No record makes it fail, and no log or metric tells of records.

    Args:
        plan: from the ``plan`` of ``SparseProject``, ``CountSketch``, ``StabilityHistogram`` or
            ``HybridSketch``; its hash key is drawn with it, before any record is read.
        columns: which columns of the records to read.
        ledger_token: from ``Ledger.spend``, for just this release; the card then names its entry.

    Raises:
        InputError: if the token paid for something else; when applied, if the records are windowed
            or unbounded, or lack a column.

    Input: Arrow batches (``ReadRecords``), pandas frames, dicts, or rows with a schema.

    Output: shards of one serialised release, for ``WriteRelease``. Empty input gives a release of
    the same shape as any other.
    """

    def __init__(
        self, plan: SparsePlan, columns: KeyColumns, ledger_token: Token | None = None
    ) -> None:
        super().__init__()
        check_is("plan", plan, SparsePlan)
        check_is("columns", columns, KeyColumns)
        self.plan = dataclasses.replace(plan, key=columns.stated()).paid_by(ledger_token)
        self.columns = columns

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[ReleaseShard]:
        """Encodes, limits contributions, projects and counts, draws."""
        refuse_windows(records)
        plan = self.plan
        encode = EncodeKeys(
            self.columns, plan.max_weight, plan.hash_key, plan.guarantee.privacy_unit
        )
        limited = records | "Encode" >> encode | "Limit" >> LimitKeys(plan)
        sums = counts = None
        if plan.sketch is not None:
            project = Summarise(ProjectionAccumulator(plan.sketch.signs(plan.hash_key)))
            sums = limited | "Project" >> project
        if plan.histogram is not None:
            counts = limited | "Count" >> CountElements()
        release, min_ram = functools.partial(_release, plan), worker_bytes(plan, plan.num_cells)
        return draw_release(records.pipeline, release, [sums, counts], min_ram)


def _release(
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
        elements = counts_of_shards(counts)
    return release_sparse(plan, SparseSummary(projection, elements), noise)
