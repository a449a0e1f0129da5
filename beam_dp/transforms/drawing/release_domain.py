"""The transforms that release what nobody has declared: values, edges, and a unit's records."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import apache_beam as beam

from beam_dp.checks import check_is
from beam_dp.mechanisms.discovery.plan import DomainPlan
from beam_dp.mechanisms.discovery.records_per_unit import RecordsPlan
from beam_dp.mechanisms.resources import worker_bytes
from beam_dp.privacy.ledger.entries import Token
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.releases.domain.release import DomainRelease
from beam_dp.releases.domain.unit_counts import UnitCounts
from beam_dp.transforms.counting.count_values import (
    CountUnits,
    CountValues,
    counts_of_values,
    levels_of_shards,
)
from beam_dp.transforms.drawing.one_worker import ReleaseShard, draw_release
from beam_dp.transforms.job_page import ShowsPromise
from beam_dp.transforms.reading.records import refuse_windows


class ReleaseDomain(ShowsPromise):
    """Releases a domain, whose open attributes get the values and edges that noise lets pass.

    Privacy: the output satisfies ``plan.guarantee`` for records whose unit is
    ``plan.guarantee.privacy_unit``; together with the release that uses the domain, ``plan.whole``
    (see ``DomainPlan``). The distributed part limits what each unit adds and computes exact sums,
    which are as secret as the records. Noise is drawn once, by one step after the last combine, and
    one draw is committed, as in ``ReleaseSyntheticDatabase``.

    A second pipeline uses the domain, which must be written and read back first::

        plan = dp.plan_domain(open_domain, guarantee)
        ... | dp.ReleaseDomain(plan, token) | dp.WriteRelease("out/domain")
        found = dp.read_release("out/domain", kind=dp.DomainRelease)
        ... | dp.ReleaseSyntheticDatabase(
            found.domain, workload, guarantee, mechanism, ledger_token=token, domain_release=found
        )

    Args:
        plan: from ``plan_domain``.
        ledger_token: the token that paid for this domain and the release that uses it, of the
            mechanism of that release, ``plan.whole`` and ``total_loss(plan.shared)``. Each of the
            two releases may use the token once.

    Raises:
        InputError: if the token paid for something else; when applied, if the records are windowed
            or unbounded, or lack a column.

    Input: Arrow batches (``ReadRecords``), pandas frames, dicts, or rows with a schema.

    Output: shards of one serialised release, for ``WriteRelease``.
    """

    plan: DomainPlan

    def __init__(self, plan: DomainPlan, ledger_token: Token | None = None) -> None:
        super().__init__()
        check_is("plan", plan, DomainPlan)
        self.plan = plan.paid_by(ledger_token)

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[ReleaseShard]:
        """Counts the values of open attributes, and draws the release."""
        refuse_windows(records)
        plan = self.plan
        shards = records | "Count values" >> CountValues(plan.columns, plan.whole)
        num_leaves = sum(each.num_levels for each in plan.columns.leaves)
        min_ram = worker_bytes(plan, num_leaves)
        release = functools.partial(_released_domain, plan)
        return draw_release(records.pipeline, release, [shards], min_ram)


def _released_domain(
    plan: DomainPlan, noise: NoiseSource, shards: Iterable[bytes]
) -> DomainRelease:
    """Runs the mechanisms on the sums."""
    return plan.release(counts_of_values(plan.columns, shards), noise)


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
) -> UnitCounts:
    """Runs the mechanism on the counts."""
    return plan.release(levels_of_shards(plan.most, shards), noise)
