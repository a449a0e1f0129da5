"""The transform that releases a sketch of records."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any

import apache_beam as beam

from beam_dp.checks import check_is
from beam_dp.errors import InputError
from beam_dp.mechanisms.resources import worker_bytes
from beam_dp.mechanisms.sketches.plan import SparsePlan, SparseSummary, release_sparse
from beam_dp.privacy.ledger.entries import Token
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.releases.sketches.release import SparseRelease
from beam_dp.secret.summaries.projection import ProjectionAccumulator
from beam_dp.transforms.counting import count_keys, summarise
from beam_dp.transforms.counting.keys import EncodeKeys, KeyColumns, LimitKeys
from beam_dp.transforms.drawing.one_worker import ReleaseShard, draw_release
from beam_dp.transforms.job_page import ShowsPromise
from beam_dp.transforms.reading.records import refuse_windows


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
            encoded, texts = encoded[count_keys.KEYS], encoded[count_keys.TEXTS]
        limited = encoded | "Limit" >> LimitKeys(plan)
        sums = counts = None
        if plan.sketch is not None:
            project = summarise.Summarise(ProjectionAccumulator(plan.sketch.signs(plan.hash_key)))
            sums = limited | "Project" >> project
        if texts is not None:
            counts = (limited, texts) | "Count" >> count_keys.CountListedKeys()
        elif plan.histogram is not None:
            counts = limited | "Count" >> count_keys.CountElements()
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
