"""The transform from records to a release of interval counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import apache_beam as beam
import numpy as np

from beam_dp.domain import Domain
from beam_dp.mechanisms.intervals import IntervalPlan, plan_intervals, release_intervals
from beam_dp.mechanisms.intervals.plan import StrategyChoice
from beam_dp.mechanisms.left_out import plan_left_out, share_guarantee, with_left_out
from beam_dp.noise.source import NoiseSource
from beam_dp.planning.worker_memory import worker_bytes
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.releases.intervals import ordered_domain
from beam_dp.summaries import HistogramAccumulator
from beam_dp.transforms.counting.limited_records import (
    left_out_counts,
    limited_records,
)
from beam_dp.transforms.counting.summarise import Summarise
from beam_dp.transforms.drawing.release import (
    ReleaseShard,
    draw_once,
    release_shards,
)
from beam_dp.transforms.errors import show_setup, withhold_messages

if TYPE_CHECKING:
    from beam_dp.privacy.ledger.entries import Token

MECHANISM = "intervals"


class ReleaseIntervals(beam.PTransform):
    """Releases counts of all intervals of one ordered attribute: integers, or bins.

    Privacy: the output satisfies ``guarantee``, as ``plan_intervals`` says. The distributed part
    is the exact histogram of the attribute, as secret as the records. Noise is drawn once, by one
    step behind which a ``Reshuffle`` stands; see ``ReleaseSyntheticDatabase``.

    Only the attribute's column and the unit's are read: other columns, and combinations of
    levels that the domain declares impossible, leave no record out. The levels "other" and null
    have no place in the order: such records are limited like others, and are not counted.

    Args:
        domain: the universe, or any that has the attribute; values outside are left out, silently.
        attribute: name of an ordered attribute of 2 to 2^20 levels.
        guarantee: what is promised.
        strategy: by name, see ``plan_intervals``; by default the one with the least mean squared
            error over all intervals.
        ledger_token: from ``Ledger.spend``, for just this release; the card then names its entry.
        count_left_out: whether the records whose value has no level are counted, with noise, from
            5 % of the budget: see ``plan_left_out``. The release then has them as ``left_out``.

    Raises:
        InputError: if the attribute is not ordered, the strategy can't keep the guarantee, or the
            token paid for something else; when applied, if the records are windowed or unbounded,
            or lack a column.

    Input: Arrow batches (``ReadRecords``), pandas frames, dicts, or rows with a schema.

    Output: shards of one serialised release, for ``WriteRelease``. Empty input gives a release of
    the same shape as any other.
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
        super().__init__()
        self.domain = ordered_domain(domain, attribute)
        main = share_guarantee(guarantee) if count_left_out else guarantee
        self.plan = plan_intervals(self.domain.attributes[0].num_levels, main, strategy)
        if count_left_out:
            counts = plan_left_out(self.domain, guarantee, self.plan.loss)
            self.plan = dataclasses.replace(self.plan, loss=counts.loss, left_out=counts)
        self.parameters: dict[str, Any] = {}
        if ledger_token is not None:
            ledger_token.check(MECHANISM, guarantee, self.plan.loss)
            self.parameters["ledger_release"] = ledger_token.release_id

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[ReleaseShard]:
        """Counts, draws."""
        encoded, left_out = limited_records(
            records, self.domain, self.plan.guarantee, as_cells=True, left_out=self.plan.left_out
        )
        shards = encoded | "Summarise" >> Summarise(HistogramAccumulator(self.domain))
        draw = _Draw(self.plan, self.domain, self.parameters)
        return draw_once(shards, draw, worker_bytes(self.plan, self.domain.num_cells), left_out)


class _Draw(beam.DoFn):
    """Measures the histogram: the only step that draws noise."""

    def __init__(self, plan: IntervalPlan, domain: Domain, parameters: dict[str, Any]) -> None:
        self.plan = plan
        self.domain = domain
        self.parameters = parameters

    @show_setup
    def setup(self) -> None:
        # Never pickled: copies of a generator would draw the same noise.
        self._noise = NoiseSource()

    @withhold_messages
    def process(
        self,
        _: None,
        shards: Iterable[tuple[int, bytes]],
        left_out: Iterable[tuple[int, bytes]] = (),
    ) -> Iterator[ReleaseShard]:
        histogram = HistogramAccumulator(self.domain).from_shards(shards)
        counts = np.ascontiguousarray(histogram.counts[: self.plan.num_leaves])
        (attribute,) = self.domain.attributes
        release = release_intervals(self.plan, counts, self._noise, attribute, self.parameters)
        if self.plan.left_out is not None:
            counted = left_out_counts(self.plan.left_out, left_out)
            release = with_left_out(release, self.plan.left_out, counted, self._noise)
        return iter(list(release_shards(release)))
