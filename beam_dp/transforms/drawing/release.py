"""The transform from records to a synthetic database."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import apache_beam as beam

from beam_dp.domain import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms.left_out import with_left_out
from beam_dp.mechanisms.registry import plan_release
from beam_dp.noise.source import NoiseSource
from beam_dp.planning.worker_memory import worker_bytes
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.queries.workload import Workload
from beam_dp.releases import Release, release_to_bytes
from beam_dp.summaries import HistogramAccumulator, Marginals, MarginalsAccumulator
from beam_dp.transforms.counting.limited_records import (
    left_out_counts,
    limited_records,
)
from beam_dp.transforms.counting.summarise import Summarise
from beam_dp.transforms.drawing.one_worker import run_once
from beam_dp.transforms.errors import show_setup, withhold_messages

if TYPE_CHECKING:
    from beam_dp.mechanisms import MarginalsPlan, Mechanism
    from beam_dp.privacy.ledger.entries import Token

RELEASE_SHARD_BYTES = 2**23
# Beyond this many merged tables a record is counted faster in one histogram of the domain,
# whose tables are then summed up once; up to 2^26 cells (512 MiB) of it.
_FEW_TABLES = 4
_HISTOGRAM_CELLS = 2**26

ReleaseShard = tuple[str, tuple[int, int, bytes]]  # draw id, (number, how many, bytes)


class ReleaseSyntheticDatabase(beam.PTransform):
    """Releases a synthetic database that answers a workload.

    Privacy: the output satisfies ``guarantee`` for records whose unit is
    ``guarantee.privacy_unit``. The distributed part computes exact integer tables and is as
    secret as the records. Noise is drawn once, by one step after the last combine; a
    ``Reshuffle`` keeps that step apart from whatever reads its output, so that a reader that is
    retried sees the same draw. Beam may still redo the drawing step, where a runner does not
    keep what passed the ``Reshuffle``: each draw has an id of its own, and ``WriteRelease``
    commits one of them.

    Everything that can be refused is refused here or when this is applied, from public
    parameters. No record makes it fail, and no log or metric tells of records.

    Args:
        domain: the universe; records outside it are left out, silently.
        workload: the marginals that the release must answer; for ``SmallDB`` any linear
            queries.
        guarantee: what is promised.
        mechanism: how it is kept.
        num_records: the number of records, where it is public; ``"noisy"`` to estimate it from
            the budget.
        ledger_token: from ``Ledger.spend``, for just this release; the card then names its entry.
            Without one nothing is recorded.
        count_left_out: whether the records outside the domain are counted, with noise, from 5 %
            of the budget: see ``plan_left_out``. The release then has them as ``left_out``.

    Raises:
        InputError: if the mechanism refuses these parameters, or the token paid for something
            else; when applied, if the records are
            windowed or unbounded, or lack a column.

    Input: Arrow batches (``ReadRecords``), pandas frames, dicts, or rows with a schema.

    Output: shards of one serialised release, for ``WriteRelease``. Empty input gives a release
    of the same shape as any other.
    """

    def __init__(
        self,
        domain: Domain,
        workload: Workload | LinearWorkload,
        guarantee: Guarantee,
        mechanism: Mechanism,
        num_records: int | Literal["noisy"] = "noisy",
        ledger_token: Token | None = None,
        count_left_out: bool = False,
    ) -> None:
        super().__init__()
        self.domain = domain
        self.guarantee = guarantee
        self.mechanism = mechanism
        self.plan = plan_release(
            mechanism, domain, workload, guarantee, num_records, count_left_out
        )
        if ledger_token is not None:
            self.plan = paid_plan(self.plan, mechanism.name, ledger_token)
        self.accumulator = choose_accumulator(domain, self.plan.summary_tables)

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[ReleaseShard]:
        """Encodes, limits contributions, counts, draws."""
        encoded, left_out = limited_records(
            records,
            self.domain,
            self.guarantee,
            as_cells=isinstance(self.accumulator, HistogramAccumulator),
            left_out=self.plan.left_out,
        )
        shards = encoded | "Summarise" >> Summarise(self.accumulator)
        draw = _Draw(self.mechanism, self.plan, self.accumulator)
        return draw_once(
            shards, draw, worker_bytes(self.plan, self.accumulator.num_cells), left_out
        )


def draw_once(
    shards: beam.PCollection[tuple[int, bytes]],
    draw: beam.DoFn,
    min_ram: int,
    left_out: beam.PCollection[tuple[int, bytes]] | None = None,
) -> beam.PCollection[ReleaseShard]:
    """Returns the shards of a release: the one step that draws noise, and a barrier behind it.

    Args:
        shards: of the exact summary.
        draw: is given one public element, and all shards as its side inputs.
        min_ram: of the worker that draws, in bytes; asked of the runner, so it must be public.
        left_out: of the counts of what was left out, where these are drawn, too: by the same
            step, so that one draw holds both.
    """
    sides = [beam.pvalue.AsIter(each) for each in (shards, left_out) if each is not None]
    step = beam.ParDo(draw, *sides).with_output_types(ReleaseShard)
    return run_once(shards.pipeline, "Draw" >> step, "Keep the draw", min_ram)


def release_shards(release: Release) -> Iterator[ReleaseShard]:
    """Yields a serialised release in pieces that a runner can carry."""
    data = release_to_bytes(release)
    num_pieces = -(-len(data) // RELEASE_SHARD_BYTES)
    for number in range(num_pieces):
        piece = data[number * RELEASE_SHARD_BYTES :][:RELEASE_SHARD_BYTES]
        yield release.draw_id, (number, num_pieces, piece)


def paid_plan(plan: MarginalsPlan, mechanism: str, token: Token) -> MarginalsPlan:
    """Returns the plan, whose card will name the ledger's entry.

    Raises:
        InputError: if the token paid for another guarantee, mechanism or loss.
    """
    token.check(mechanism, plan.promised, plan.loss)
    return dataclasses.replace(plan, ledger_release=token.release_id)


def choose_accumulator(
    domain: Domain, tables: Iterable[tuple[str, ...]]
) -> HistogramAccumulator | MarginalsAccumulator:
    """Returns what to count so that all tables follow from it, by public sizes alone.

    Raises:
        InputError: if neither the domain nor the tables fit.
    """
    try:
        marginals = MarginalsAccumulator(domain, tables)
    except InputError:
        if domain.num_cells > _HISTOGRAM_CELLS:
            raise
        return HistogramAccumulator(domain)
    if domain.num_cells <= _HISTOGRAM_CELLS and (
        marginals.num_merged_tables > _FEW_TABLES or marginals.num_cells >= domain.num_cells
    ):
        return HistogramAccumulator(domain)
    return marginals


class _Draw(beam.DoFn):
    """Runs the mechanism on the summary: the only step that draws noise."""

    def __init__(
        self,
        mechanism: Mechanism,
        plan: MarginalsPlan,
        accumulator: HistogramAccumulator | MarginalsAccumulator,
    ) -> None:
        self.mechanism = mechanism
        self.plan = plan
        self.accumulator = accumulator

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
        summary = self.accumulator.from_shards(shards)
        if not isinstance(summary, Marginals):
            summary = summary.marginals(self.plan.summary_tables)
        release = self.mechanism.release(self.plan, summary, self._noise, progress=_log_progress)
        if self.plan.left_out is not None:
            counts = left_out_counts(self.plan.left_out, left_out)
            release = with_left_out(release, self.plan.left_out, counts, self._noise)
        return iter(list(release_shards(release)))


def _log_progress(step: str, done: int, total: int) -> None:
    """Logs a public quantity where programs listen for it."""
    logging.getLogger("beam_dp.progress").info("%s: %d of %d", step, done, total)
