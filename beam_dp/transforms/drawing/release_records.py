"""The transform that releases numbers of privacy units by their numbers of records."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import apache_beam as beam

from beam_dp.checks import check_is
from beam_dp.mechanisms.discovery.records_per_unit import RecordsPlan
from beam_dp.mechanisms.resources import worker_bytes
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.ledger.entries import Token
from beam_dp.releases.intervals.release import IntervalRelease
from beam_dp.transforms.counting.count_units import CountUnits, levels_of_shards
from beam_dp.transforms.drawing.one_worker import ReleaseShard, draw_release
from beam_dp.transforms.job_page import ShowsPromise
from beam_dp.transforms.reading.records import refuse_windows


class ReleaseRecordsPerUnit(ShowsPromise):
    """Releases noisy numbers of units by their records, from which a limit follows.

    Privacy: see ``RecordsPlan``. The distributed part computes exact counts, which are as secret as
    the records. Noise is drawn once, by one step after the last combine, and one draw is committed,
    as in ``ReleaseSyntheticDatabase``.

    Args:
        plan: from ``plan_records``.
        ledger_token: the token that paid for the choice and the releases that use it.

    Input: Arrow batches (``ReadRecords``), pandas frames, dicts, or rows with a schema.

    Output: shards of one serialised release, for ``WriteRelease``.
    """

    def __init__(self, plan: RecordsPlan, ledger_token: Token | None = None) -> None:
        super().__init__()
        check_is("plan", plan, RecordsPlan)
        self.choice = plan.paid_by(ledger_token)
        self.plan = self.choice.counts

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[ReleaseShard]:
        """Counts units, and draws the release."""
        refuse_windows(records)
        plan = self.choice
        counting = CountUnits(plan.declared, plan.whole.privacy_unit, plan.most)
        shards = records | "Count units" >> counting
        release = functools.partial(_released_counts, plan)
        min_ram = worker_bytes(plan.counts, plan.counts.num_leaves)
        return draw_release(records.pipeline, release, [shards], min_ram)


def _released_counts(
    plan: RecordsPlan, noise: NoiseSource, shards: Iterable[tuple[int, bytes]]
) -> IntervalRelease:
    """Runs the mechanism on the counts."""
    return plan.release(levels_of_shards(plan.most, shards), noise)
