"""The transforms that release interval counts, and read them back as rows with a schema."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import apache_beam as beam
import numpy as np

from beam_dp.domain.attributes import Attribute
from beam_dp.domain.ordered import BinnedAttribute, IntegerAttribute
from beam_dp.domain.universe import Domain, check_edges_budget
from beam_dp.errors import InputError
from beam_dp.mechanisms.intervals import (
    IntervalPlan,
    StrategyChoice,
    plan_attribute,
    release_intervals,
)
from beam_dp.mechanisms.resources import worker_bytes
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger.entries import Token
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.releases.error_bars import FROM_NOISE
from beam_dp.releases.intervals.release import IntervalRelease, interval_cells, ordered_domain
from beam_dp.releases.kinds import read_release
from beam_dp.secret.summaries.histogram import HistogramAccumulator
from beam_dp.transforms.counting import summarise
from beam_dp.transforms.drawing.one_worker import ReleaseShard, draw_release
from beam_dp.transforms.job_page import ShowsPromise
from beam_dp.transforms.reading.released_rows import ANSWER, Directory, ReleasedRows, Rows


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


class IntervalRows(ReleasedRows):
    """Returns released interval counts as rows with a schema.

    The rows are post-processing of the release, as those of ``MarginalRows``.

    Args:
        directory: the directory of an existing release; None for releases that the pipeline writes.
        domain: the domain of the releases that the pipeline writes; None if a directory is given.
        attribute: the counted attribute of the domain; None if a directory is given.
        intervals: pairs (low, high) as for ``IntervalRelease.cells``; by default every cell: one
            integer, or one bin.

    Raises:
        InputError: if neither or both of directory and domain are given, the attribute is unknown
            or not ordered, an interval is invalid, or a release has another attribute.
        ReleaseError: if the release is missing, damaged, or does not contain interval counts.

    Input: as for ``SyntheticRows``.

    Output: one ``beam.Row`` per interval. ``low`` and ``high`` are the ends: integers (both
    included), edges of bins, or ISO 8601 strings. The other fields are as for ``MarginalRows``; all
    bounds of one release are true together, except with probability 0.05.

    Example:
        >>> rows = pipeline | IntervalRows("out/ages", intervals=[(18, 64)])  # doctest: +SKIP
    """

    def __init__(
        self,
        directory: Directory | None = None,
        *,
        domain: Domain | None = None,
        attribute: str | None = None,
        intervals: Sequence[tuple[Any, Any]] | None = None,
    ) -> None:
        if directory is not None and domain is None and attribute is None:
            counted = read_release(directory, kind=IntervalRelease).attribute
        elif directory is None and domain is not None and attribute is not None:
            (counted,) = ordered_domain(domain, attribute).attributes
        else:
            condition = "must be given, or else the domain and the attribute"
            raise InputError("directory", directory, condition)
        cells = None
        if intervals is not None:
            cells = [interval_cells(counted, low, high) for low, high in intervals]
        of_numbers: dict[str, type] = {"integer": int, "numeric": float}
        end = of_numbers.get(counted.kind, str)
        fields = {"low": end, "high": end, **ANSWER}
        super().__init__(directory, fields, _interval_values, counted, cells)


def _interval_values(
    directory: str, attribute: Attribute, cells: Sequence[tuple[int, int]] | None
) -> Rows:
    release = read_release(directory, kind=IntervalRelease)
    if release.attribute != attribute:
        condition = f"must contain counts of the given attribute {attribute.name!r}"
        raise InputError("directory", directory, condition)
    lows: Sequence[Any]
    highs: Sequence[Any]
    every = np.arange(release.num_leaves)
    first, last = (every, every) if cells is None else np.array(cells, np.int64).reshape(-1, 2).T
    answers = release.answer(first, last, all_at_once=True)
    if isinstance(attribute, BinnedAttribute):
        edges = attribute.edges_to_json()
        lows, highs = edges[:-1], edges[1:]
    else:
        assert isinstance(attribute, IntegerAttribute)
        lows = highs = range(attribute.minimum, attribute.maximum + 1)
    columns = [first, last, answers.values, answers.standard_errors, answers.bounds]
    for low, high, *numbers in zip(*(column.tolist() for column in columns), strict=True):
        yield lows[low], highs[high], *numbers, FROM_NOISE, None, release.draw_id
