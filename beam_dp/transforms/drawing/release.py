"""The transform from records to a synthetic database."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import apache_beam as beam

from beam_dp.domain.universe import Domain, check_edges_budget
from beam_dp.mechanisms.draw_database import draw_database
from beam_dp.mechanisms.registry import ReleaseOptions, plan_release
from beam_dp.mechanisms.resources import worker_bytes
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.summaries.histogram import (
    HistogramAccumulator,
    MarginalsAccumulator,
    choose_accumulator,
)
from beam_dp.transforms.counting.summarise import Summarise, limited_records
from beam_dp.transforms.drawing.one_worker import draw_release
from beam_dp.transforms.elements import ReleaseShard

if TYPE_CHECKING:
    from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism
    from beam_dp.privacy.ledger.entries import Token


class ReleasePlanned(beam.PTransform):
    """``ReleaseSyntheticDatabase`` of what was planned before: a plan takes seconds."""

    def __init__(
        self, mechanism: Mechanism, plan: MarginalsPlan, ledger_token: Token | None = None
    ) -> None:
        super().__init__()
        self.mechanism = mechanism
        self.plan = plan.paid_by(ledger_token)
        self.accumulator = choose_accumulator(plan.domain, plan.summary_tables)

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[ReleaseShard]:
        """Encodes, limits contributions, counts, draws."""
        encoded, left_out = limited_records(
            records,
            self.plan.domain,
            self.plan.promised,
            as_cells=isinstance(self.accumulator, HistogramAccumulator),
            left_out=self.plan.left_out,
            unit_costs=self.plan.unit_costs,
        )
        shards = encoded | "Summarise" >> Summarise(self.accumulator)
        release = functools.partial(_release, self.mechanism, self.plan, self.accumulator)
        min_ram = worker_bytes(self.plan, self.accumulator.num_cells)
        return draw_release(
            records.pipeline, release, [shards], min_ram, self.plan.left_out, left_out
        )


class ReleaseSyntheticDatabase(ReleasePlanned):
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
        within_bins: whether released values of attributes with bins are drawn, ``"uniform"`` in
            the bin, or are its ``"midpoint"``. Of more than 2^25 such values it is the midpoint.
        records_format: of the file of records: ``"avro"``, ``"parquet"`` or ``"csv"``.
        start_from: a ``SyntheticDatabase`` of the same domain that was released before, or a table
            of public records, whose distribution the hypothesis starts from if that seems to lower
            its error: see ``StartingRecords``. What is measured and promised stays as it is.

    Raises:
        InputError: if the mechanism refuses these parameters, the token paid for something else, or
            edges of the domain came from a release and no token of its budget pays; when applied,
            if the records are windowed or unbounded, or lack a column.

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
        within_bins: Literal["uniform", "midpoint"] = "uniform",
        records_format: Literal["avro", "parquet", "csv"] = "avro",
        start_from: Any = None,
    ) -> None:
        options = ReleaseOptions(
            num_records=num_records,
            count_left_out=count_left_out,
            within_bins=within_bins,
            records_format=records_format,
            start_from=start_from,
        )
        plan = plan_release(mechanism, domain, workload, guarantee, options)
        super().__init__(mechanism, plan, ledger_token)
        check_edges_budget(domain, None if ledger_token is None else ledger_token.dataset_id)


def _release(
    mechanism: Mechanism,
    plan: MarginalsPlan,
    accumulator: HistogramAccumulator | MarginalsAccumulator,
    noise: NoiseSource,
    shards: Iterable[tuple[int, bytes]],
) -> SyntheticDatabase:
    """Runs the mechanism on the summary."""
    summary = accumulator.from_shards(shards)
    return draw_database(mechanism, plan, summary, noise, _log_progress)


def _log_progress(step: str, done: int, total: int) -> None:
    """Logs a public quantity where programs listen for it; of a step that is one, its name."""
    text = step if total == 1 else f"{step}: {done} of {total}"
    logging.getLogger("beam_dp.progress").info("%s", text)
