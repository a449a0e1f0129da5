"""Releases a table that fits on one machine: the steps of the distributed program without Beam."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.discover import OpenDomain
from beam_dp.domain.universe import Domain, released_edges
from beam_dp.errors import InputError, usual_floats, withhold_messages
from beam_dp.mechanisms.discovery.plan import DomainPlan
from beam_dp.mechanisms.left_out import with_left_out
from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism
from beam_dp.mechanisms.registry import ReleaseOptions, draw_database, plan_discovery, plan_release
from beam_dp.privacy.guarantee import RECORD, Guarantee, warn_of_epsilon, warn_of_record_unit
from beam_dp.privacy.ledger.entries import Origin, place_text
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.privacy.unit_costs import UnitCosts
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.queries.workload import Workload
from beam_dp.releases.domain.earlier import check_edges_paid
from beam_dp.releases.domain.release import FOLDER, DomainRelease
from beam_dp.releases.files.commit import probe_output
from beam_dp.releases.kinds import write_release
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.secret.encoding.batch import CostLimit, RecordWords
from beam_dp.secret.encoding.contributions import limit_records
from beam_dp.secret.encoding.records import EncodedBatch, encode_all_records, encode_records
from beam_dp.secret.encoding.tables import Table
from beam_dp.secret.summaries.element_counts import ValueCounts, counted_values
from beam_dp.secret.summaries.histogram import HistogramAccumulator, Marginals, MarginalsAccumulator

if TYPE_CHECKING:
    import pyarrow as pa


@usual_floats()
def release(
    table: Any,
    domain: Domain | OpenDomain,
    workload: Workload | LinearWorkload,
    guarantee: Guarantee,
    *,
    domain_share: float | None = None,
    mechanism: Mechanism | None = None,
    num_records: int | Literal["noisy"] = "noisy",
    count_left_out: bool = False,
    within_bins: Literal["density", "uniform", "midpoint"] = "density",
    records_format: Literal["avro", "parquet", "csv"] = "avro",
    num_synthetic_records: int | None = None,
    start_from: Any = None,
    output: str | os.PathLike[str] | None = None,
    ledger: Ledger | None = None,
    dataset_id: str = "",
    purpose: str | None = None,
) -> SyntheticDatabase:
    """Releases a synthetic database of a table in memory.

    Privacy: the release satisfies ``guarantee`` for records whose unit is
    ``guarantee.privacy_unit``. Records are encoded and limited by the same functions as in
    ``ReleaseSyntheticDatabase``, counted exactly, and the release is drawn once. All checks come
    before the draw, and use public parameters only. The table and the data in memory are as secret
    as the records.

    Args:
        table: a pandas or polars frame, an Arrow table, or any object with
            ``__arrow_c_stream__``; read once. Missing values in pandas become null.
        domain: the domain of the records; records outside the domain are silently left out. If
            attributes are to be discovered (``read_open_domain``), their values and edges are
            released first, into the folder ``domain`` of ``output``.
        workload: the marginals that the release must answer; for ``SmallDB`` any linear queries.
        guarantee: the privacy guarantee of the release, including that of its domain.
        domain_share: the part of the budget that discovers attributes; see ``plan_domain``.
        mechanism: the mechanism that makes the release; ``MWEM()`` by default.
        num_records: the number of records, if it is public; ``"noisy"`` spends part of the budget
            on a noisy count.
        count_left_out: see ``ReleaseSyntheticDatabase``.
        within_bins: see ``ReleaseSyntheticDatabase``.
        records_format: see ``ReleaseSyntheticDatabase``.
        num_synthetic_records: see ``ReleaseSyntheticDatabase``.
        start_from: see ``ReleaseSyntheticDatabase``.
        output: a directory to which the release is also written, as by ``write_release``.
        ledger: the ledger that pays before noise is drawn; the card then names the entry.
        dataset_id: the dataset whose budget pays.
        purpose: the purpose in the ledger's entry, besides the author, time and ``output``.

    Returns:
        The release.

    Raises:
        InputError: if an argument is invalid, the table lacks a column, or the type of a column
            does not fit the domain; then nothing was spent, drawn or written.
        LedgerError: if the ledger can't be used.
        PrivateStepError: if encoding, counting or drawing fails; as in a job, the message does not
            quote records.
        ReleaseError: if a written file was lost.
        Exception: if the release could not be written. The exception's attribute ``release`` is the
            release, because the budget is spent and another draw would cost the budget again.

    Cost: encoding and counting take tens of nanoseconds per record and attribute, on one thread.
    The table and the mechanism need memory; if the unit is not the record, each record needs a
    further 16 bytes and memory for its codes.

    Example:
        >>> import pyarrow as pa
        >>> from beam_dp.domain.files import read_domain
        >>> from beam_dp.queries.workload import marginals
        >>> domain = read_domain('{"age": 85, "sex": 2}')
        >>> table = pa.table({"age": [30, 41, 41], "sex": [0, 1, 1]})
        >>> guarantee = Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
        >>> release(table, domain, marginals(domain, ways=2), guarantee).domain == domain
        True
    """
    mechanism = MWEM() if mechanism is None else mechanism
    options = ReleaseOptions(
        num_records=num_records,
        count_left_out=count_left_out,
        within_bins=within_bins,
        records_format=records_format,
        num_synthetic_records=num_synthetic_records,
        start_from=start_from,
    )
    to_discover = None
    if not isinstance(domain, OpenDomain):
        declared = domain
        plan = plan_release(mechanism, declared, workload, guarantee, options)
    else:
        if not isinstance(workload, Workload):
            condition = "must consist of marginals, as attributes are to be discovered"
            raise InputError("workload", type(workload).__name__, condition)
        declared = domain.bounded()
        asked = domain, workload, guarantee, options, domain_share
        to_discover, plan = plan_discovery(mechanism, *asked, is_paid=ledger is not None)
    warn_of_epsilon(guarantee.epsilon)
    records = Table(table)
    columns = _check_columns(records, declared, guarantee.privacy_unit)
    if (ledger is None) != (not dataset_id):
        raise InputError("dataset_id", dataset_id, "must be given with a ledger, and only then")
    if any(released_edges(declared)):
        check_edges_paid(declared, ledger, dataset_id)
    if purpose is not None and ledger is None:
        raise InputError("purpose", purpose, "must be given with a ledger, which keeps it")
    if ledger is not None:
        ledger.check(dataset_id, guarantee, plan.loss)
    if output is not None:
        probe_output(output, num_bytes=plan.disk_bytes)
    batches: Iterable[pa.RecordBatch] = records.batches(columns)
    if to_discover is None:
        summary, left_out = _count(plan, batches)
    else:
        batches = list(batches)
        values = _count_values(to_discover, batches)
    token = None
    if ledger is not None:
        place = None if output is None else place_text(os.fspath(output))
        stated = plan.mechanism, plan.entry(), Origin(purpose=purpose, output=place)
        token = ledger.spend(dataset_id, guarantee, plan.loss, *stated)
        ledger.mark_submitted(token)
    if to_discover is not None:
        found = _draw_domain(to_discover.paid_by(token), values)
        if output is not None:
            _write(found, _inside(output))
        if ledger is not None and token is not None:
            ledger.mark_released(token, found.draw_id)
            ledger.use_state(token, 1)  # the second draw is made only once
        options = dataclasses.replace(options, discovered=found.discovered)
        assert isinstance(workload, Workload)  # the largest domain had one, too
        workload = Workload(found.domain, workload.marginals, workload.weights)
        plan = plan_release(mechanism, found.domain, workload, guarantee, options)
        summary, left_out = _count(plan, batches)
    if token is not None:
        plan = plan.paid_by(token)
    drawn = _draw(mechanism, plan, summary, left_out)
    if output is not None:
        _write(drawn, output)
    if ledger is not None and token is not None and to_discover is None:
        ledger.mark_released(token, drawn.draw_id)
    return drawn


def _inside(output: str | os.PathLike[str]) -> str:
    """Returns the directory for the domain of a release."""
    return f"{os.fspath(output).rstrip('/')}/{FOLDER}"


def _write(drawn: SyntheticDatabase | DomainRelease, output: str | os.PathLike[str]) -> None:
    """Writes a release; if writing fails, the exception contains the release, already paid for."""
    try:
        write_release(drawn, output, beside=FOLDER)
    except Exception as error:
        error.release = drawn  # type: ignore[attr-defined]
        error.add_note(
            "The release was drawn and its budget is spent: it is this exception's attribute"
            " `release`. Write it elsewhere with dp.write_release(error.release, directory)."
        )
        raise


def _check_columns(records: Table, domain: Domain, privacy_unit: str) -> list[str]:
    """Checks that the table has the needed columns, and returns their names."""
    for attribute in domain:
        records.check_column("domain", attribute.name, attribute)
    if privacy_unit != RECORD:
        records.check_column("privacy_unit", privacy_unit)
        return list(dict.fromkeys((*domain.names, privacy_unit)))
    if RECORD in records.types:
        # A user who means this column would get the weaker guarantee without noticing.
        condition = "is also a column of the table: rename that column to say which is meant"
        raise InputError("privacy_unit", RECORD, condition)
    warn_of_record_unit(name for name in records.types if name not in domain)
    return list(domain.names)


@withhold_messages
def _count_values(plan: DomainPlan, batches: Iterable[pa.RecordBatch]) -> ValueCounts:
    """Returns the exact sums of the values to discover; secret."""
    return counted_values(plan.columns, plan.whole, batches)


@withhold_messages
def _draw_domain(plan: DomainPlan, values: ValueCounts) -> DomainRelease:
    """Returns the released domain."""
    return plan.release(values, NoiseSource())


@withhold_messages
def _count(
    plan: MarginalsPlan, batches: Iterable[pa.RecordBatch]
) -> tuple[Marginals, NDArray[np.int64] | None]:
    """Returns the exact summary and, if asked, the counts outside the domain; both are secret."""
    accumulator = MarginalsAccumulator(plan.domain, plan.summary_tables)
    how = plan.domain, plan.guarantee.privacy_unit, accumulator.as_cells
    if plan.left_out is None:
        encoded = (encode_records(*how, batch) for batch in batches)
        return _summary(accumulator, encoded, plan.domain, plan.guarantee, plan.unit_costs), None
    both = [encode_all_records(*how, batch) for batch in batches]
    inside, outside = ([pair[side] for pair in both] for side in range(2))
    counts = HistogramAccumulator(plan.left_out.domain)
    left_out = _summary(counts, iter(outside), plan.left_out.domain, plan.guarantee, None)
    summary = _summary(accumulator, iter(inside), plan.domain, plan.guarantee, plan.unit_costs)
    return summary, left_out.counts


def _summary(
    accumulator: Any,
    batches: Iterator[EncodedBatch],
    domain: Domain,
    guarantee: Guarantee,
    unit_costs: UnitCosts | None,
) -> Any:
    """Returns the exact summary of at most k records of each unit, within a limit of costs."""
    if guarantee.privacy_unit != RECORD:
        words = RecordWords(domain)
        cost_limit = None if unit_costs is None else CostLimit(words, unit_costs)
        most = guarantee.max_records_per_unit
        batches = iter([limit_records(words, batches, most, cost_limit)])
    state = accumulator.create()
    for batch in batches:
        state = accumulator.add_batch(state, batch)
    return accumulator.from_shards(accumulator.to_shards(state))


@withhold_messages
def _draw(
    mechanism: Mechanism,
    plan: MarginalsPlan,
    summary: Marginals,
    left_out: NDArray[np.int64] | None,
) -> SyntheticDatabase:
    """Returns the release; the only step that draws noise."""
    noise = NoiseSource()
    drawn = draw_database(mechanism, plan, summary, noise)
    if plan.left_out is None or left_out is None:
        return drawn
    return with_left_out(drawn, plan.left_out, left_out, noise)
