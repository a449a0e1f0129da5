"""The transforms that release interval counts."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any

import apache_beam as beam
import numpy as np

from beam_dp.domain.universe import Domain, check_edges_budget
from beam_dp.errors import InputError
from beam_dp.mechanisms.intervals import (
    IntervalPlan,
    StrategyChoice,
    plan_intervals,
    release_intervals,
)
from beam_dp.mechanisms.left_out import plan_left_out, share_guarantee
from beam_dp.mechanisms.resources import worker_bytes
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger.entries import Token
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.releases.intervals.release import IntervalRelease, ordered_domain
from beam_dp.secret.summaries.histogram import HistogramAccumulator
from beam_dp.transforms.counting import summarise
from beam_dp.transforms.drawing.one_worker import ReleaseShard, draw_release
from beam_dp.transforms.job_page import ShowsPromise


class ReleasePlannedIntervals(ShowsPromise):
    """``ReleaseIntervals`` with a plan from ``plan_attribute``, because planning takes seconds."""

    plan: IntervalPlan

    def __init__(self, plan: IntervalPlan, ledger_token: Token | None = None) -> None:
        super().__init__()
        if plan.attribute is None:
            raise InputError("plan", plan, "must be for an attribute")
        self.domain = Domain((plan.attribute,))
        self.plan = plan.paid_by(ledger_token)

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[ReleaseShard]:
        """Counts records, then draws the release."""
        encoded, left_out = summarise.limited_records(
            records,
            self.domain,
            self.plan.guarantee,
            as_cells=True,
            unit_costs=self.plan.unit_costs,
            left_out=self.plan.left_out,
        )
        shards = encoded | "Summarise" >> summarise.Summarise(HistogramAccumulator(self.domain))
        release = functools.partial(_released_intervals, self.plan, self.domain)
        min_ram = worker_bytes(self.plan, self.domain.num_cells)
        return draw_release(
            records.pipeline, release, [shards], min_ram, self.plan.left_out, left_out
        )


class ReleaseIntervals(ReleasePlannedIntervals):
    """Releases counts of all intervals of one ordered attribute: integers, or bins.

    Privacy: the output satisfies ``guarantee``, as described in ``plan_intervals``. The distributed
    part computes the exact histogram of the attribute, which is as secret as the records. Noise is
    drawn once, by one step before a ``Reshuffle``; see ``ReleaseSyntheticDatabase``.

    The transform reads only the columns of the attribute and of the privacy unit: other columns,
    and impossible combinations of the domain, do not exclude records. A record whose level is
    "other" or null has no place in the order: it counts towards a unit's limit, but in no interval.

    Args:
        domain: a domain that has the attribute; values outside are silently left out.
        attribute: the name of an ordered attribute with 2 to 2^20 levels.
        guarantee: the promised guarantee.
        strategy: the name of a strategy (see ``plan_intervals``); the default is the strategy with
            the smallest mean squared error over all intervals.
        ledger_token: the token from ``Ledger.spend`` that paid for this release; the card then
            names the ledger entry.
        count_left_out: whether to count records whose value has no level, with noise, from 5 % of
            the budget (see ``plan_left_out``). The release contains the counts as ``left_out``.

    Raises:
        InputError: if the attribute is not ordered, the strategy can't keep the guarantee, the
            token paid for another release, or the edges came from a release and the token is not of
            the same budget; when applied, if the records are windowed or unbounded, or lack a
            column.

    Input: Arrow batches (``ReadRecords``), pandas frames, dicts, or rows with a schema.

    Output: shards of one serialised release, for ``WriteRelease``. Empty input gives a release of
    the same shape as any other input.
    """

    def __init__(
        self,
        domain: Domain,
        attribute: str,
        guarantee: Guarantee,
        strategy: StrategyChoice = "best",
        ledger_token: Token | None = None,
        count_left_out: bool = False,
    ) -> None:
        plan = plan_attribute(domain, attribute, guarantee, strategy, count_left_out)
        super().__init__(plan, ledger_token)
        check_edges_budget(self.domain, None if ledger_token is None else ledger_token.dataset_id)


def plan_attribute(
    domain: Domain,
    attribute: str,
    guarantee: Guarantee,
    strategy: StrategyChoice = "best",
    count_left_out: bool = False,
) -> IntervalPlan:
    """Plans the measurement of all intervals of one attribute, as for ``ReleaseIntervals``."""
    ordered = ordered_domain(domain, attribute)
    main = share_guarantee(guarantee) if count_left_out else guarantee
    (column,) = ordered.attributes
    plan = plan_intervals(column.num_levels, main, strategy)
    counts = plan_left_out(ordered, guarantee, plan.loss) if count_left_out else None
    loss = plan.loss if counts is None else counts.loss
    return dataclasses.replace(plan, attribute=column, loss=loss, left_out=counts)


def _released_intervals(
    plan: IntervalPlan,
    domain: Domain,
    noise: NoiseSource,
    shards: Iterable[tuple[int, bytes]],
) -> IntervalRelease:
    """Runs the mechanism on the histogram."""
    histogram = HistogramAccumulator(domain).from_shards(shards)
    counts = np.ascontiguousarray(histogram.counts[: plan.num_leaves])
    (attribute,) = domain.attributes
    return release_intervals(plan, counts, noise, attribute, plan.payer())
