"""Releases a table that fits on one machine: the steps of the distributed program without Beam."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from beam_dp.domain.discover import OpenDomain
from beam_dp.domain.schemas.read import domain_draft
from beam_dp.domain.universe import Domain, released_edges
from beam_dp.errors import InputError, usual_floats, withhold_messages
from beam_dp.flags.shared import DISCOVER
from beam_dp.mechanisms.contract import EarlierPlan
from beam_dp.mechanisms.discovery.plan import DomainPlan
from beam_dp.mechanisms.discovery.records_per_unit import RecordsPlan
from beam_dp.mechanisms.left_out import with_left_out
from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.mechanisms.marginals.plan import Mechanism
from beam_dp.mechanisms.registry import ReleaseOptions, draw_database
from beam_dp.mechanisms.stages import StagePlan, Stages
from beam_dp.privacy.guarantee import RECORD, Guarantee, warn_of_epsilon, warn_of_record_unit
from beam_dp.privacy.ledger.entries import Origin, place_text
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.privacy.unit_costs import UnitCosts
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.queries.workload import Workload, marginals
from beam_dp.releases.domain.earlier import UnitCounts, check_edges_paid
from beam_dp.releases.domain.release import DomainRelease
from beam_dp.releases.files.commit import probe_output
from beam_dp.releases.kinds import write_release
from beam_dp.releases.release import Release
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.secret.encoding.batch import CostLimit, RecordWords
from beam_dp.secret.encoding.contributions import limit_records
from beam_dp.secret.encoding.records import EncodedBatch, encode_all_records, encode_records
from beam_dp.secret.encoding.tables import Table
from beam_dp.secret.summaries.histogram import HistogramAccumulator, MarginalsAccumulator
from beam_dp.secret.summaries.sparse_counts import counted_units, counted_values

_DELTA = 1e-9  # a constant: from the number of rows, it would depend on the records


@usual_floats()
def release(
    table: Any,
    domain: Domain | OpenDomain | None = None,
    workload: Workload | LinearWorkload | None = None,
    guarantee: Guarantee | None = None,
    *,
    epsilon: float | None = None,
    privacy_unit: str | None = None,
    types: Mapping[str, str] | Literal["from_data"] | None = None,
    leave_out: Sequence[str] = (),
    domain_share: float | None = None,
    max_records_per_unit: Literal["discover"] | None = None,
    mechanism: Mechanism | None = None,
    num_records: int | Literal["noisy"] = "noisy",
    count_left_out: bool = False,
    within_bins: Literal["density", "uniform", "midpoint"] = "density",
    records_format: Literal["avro", "parquet", "csv"] = "avro",
    num_synthetic_records: int | None = None,
    start_from: Any = None,
    bin_sums: bool | None = None,
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
            released first, into the folder ``domain`` of ``output``, types into its ``types``. By
            default all columns but the unit and those whose names say that they identify people or
            things; then their types, values and bins are discovered.
        workload: the marginals that the release must answer; for ``SmallDB`` any linear queries.
            By default all pairs of attributes.
        guarantee: the privacy guarantee of the release, including that of its domain. By default
            ``epsilon``, a delta of 1e-9, ``"add_or_remove_one"``, ``privacy_unit``, and one record
            a unit.
        epsilon: the privacy loss, in place of a guarantee.
        privacy_unit: the column that identifies a person, or ``"record"``, in place of a guarantee.
        types: without a domain: the types of some columns, as for ``domain_draft``; or
            ``"from_data"`` for those of the table, although they may follow from its values.
        leave_out: without a domain: other columns that are not released.
        domain_share: the part of the budget that discovers attributes; see ``plan_domain``.
        max_records_per_unit: ``"discover"`` to choose the number of records of a unit that are
            used, up to that of the guarantee, from noisy numbers of units by their records, for 2 %
            of epsilon. They are released first, into the folder ``records_per_unit`` of the release
            that follows. See ``RecordsPlan``.
        mechanism: the mechanism that makes the release; ``MWEM()`` by default.
        num_records: the number of records, if it is public; ``"noisy"`` spends part of the budget
            on a noisy count.
        count_left_out: see ``ReleaseSyntheticDatabase``.
        within_bins: see ``ReleaseSyntheticDatabase``.
        records_format: see ``ReleaseSyntheticDatabase``.
        num_synthetic_records: see ``ReleaseSyntheticDatabase``.
        start_from: see ``ReleaseSyntheticDatabase``.
        bin_sums: see ``ReleaseSyntheticDatabase``.
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
    options = ReleaseOptions(
        num_records=num_records,
        count_left_out=count_left_out,
        within_bins=within_bins,
        records_format=records_format,
        num_synthetic_records=num_synthetic_records,
        start_from=start_from,
        bin_sums=bin_sums,
    )
    records = Table(table)
    guarantee = _guarantee(guarantee, epsilon, privacy_unit)
    if domain is None:
        domain = _drafted(records, types, guarantee.privacy_unit, leave_out)
    elif types is not None or leave_out:
        name = "types" if types is not None else "leave_out"
        raise InputError(name, types or list(leave_out), "must be left out with a domain")
    if workload is None:
        workload = marginals(domain, ways=min(2, len(domain.names)))
    if max_records_per_unit not in (None, DISCOVER):
        condition = f"must be {DISCOVER!r}; the guarantee has a number"
        raise InputError("max_records_per_unit", max_records_per_unit, condition)
    if isinstance(domain, OpenDomain) and not isinstance(workload, Workload):
        condition = "must consist of marginals, as attributes are to be discovered"
        raise InputError("workload", type(workload).__name__, condition)
    largest = domain.bounded() if isinstance(domain, OpenDomain) else domain

    def request(declared: Domain) -> tuple[Workload | LinearWorkload, ReleaseOptions]:
        if declared is largest or not isinstance(workload, Workload):
            return workload, options
        return Workload(declared, workload.marginals, workload.weights), options

    stages = Stages(
        mechanism=MWEM() if mechanism is None else mechanism,
        domain=domain,
        guarantee=guarantee,
        request=request,
        is_chosen=max_records_per_unit is not None,
        domain_share=domain_share,
        is_paid=ledger is not None,
    )
    last = stages.last
    warn_of_epsilon(guarantee.epsilon)
    columns = _check_columns(records, largest, guarantee.privacy_unit)
    if (ledger is None) != (not dataset_id):
        raise InputError("dataset_id", dataset_id, "must be given with a ledger, and only then")
    if any(released_edges(largest)):
        check_edges_paid(largest, ledger, dataset_id)
    if purpose is not None and ledger is None:
        raise InputError("purpose", purpose, "must be given with a ledger, which keeps it")
    if ledger is not None:
        ledger.check(dataset_id, guarantee, last.loss)
    place = None if output is None else os.fspath(output)
    if place is not None:
        probe_output(place, num_bytes=last.disk_bytes)
    batches: Iterable[pa.RecordBatch] = records.batches(columns)
    if stages.plans[0]:
        batches = list(batches)
    counts, token, is_named = _counted(stages.first, batches), None, False
    if ledger is not None:
        token = ledger.spend(
            dataset_id,
            guarantee=guarantee,
            loss=last.loss,
            mechanism=last.mechanism,
            parameters=last.entry(),
            origin=Origin(purpose=purpose, output=None if place is None else place_text(place)),
        )
        ledger.mark_submitted(token)
    state = 0
    while True:
        drawn = _drawn(stages.first.paid_by(token), counts)
        if place is not None:
            _write(drawn, *stages.places(place)[0])
        # The entry names the draw of the domain, or else the first one.
        if ledger is not None and token is not None and not is_named and len(stages.plans[0]) < 2:
            ledger.mark_released(token, drawn.draw_id)
            is_named = True
        if isinstance(drawn, SyntheticDatabase):
            return drawn
        stages, state = stages.after(drawn), state + 1
        counts = _counted(stages.first, batches)
        if ledger is not None and token is not None:
            ledger.use_state(token, state)  # each draw is made only once


def _guarantee(
    guarantee: Guarantee | None, epsilon: float | None, privacy_unit: str | None
) -> Guarantee:
    """Returns the guarantee; without one, the usual one for an epsilon and a unit."""
    for name, value in (("epsilon", epsilon), ("privacy_unit", privacy_unit)):
        if guarantee is not None and value is not None:
            raise InputError(name, value, "must be left out with a guarantee")
    if guarantee is not None:
        return guarantee
    if epsilon is None or privacy_unit is None:
        name = "epsilon" if epsilon is None else "privacy_unit"
        raise InputError(name, None, "must be given")
    return Guarantee(epsilon, _DELTA, "add_or_remove_one", privacy_unit, 1)


def _drafted(
    records: Table,
    types: Mapping[str, str] | Literal["from_data"] | None,
    unit: str,
    leave_out: Sequence[str],
) -> Domain | OpenDomain:
    """Returns the domain of a table that nobody has described, from the names of its columns."""
    draft = domain_draft(
        records.described,
        null="undiscovered",
        types=None if types == "from_data" else types,
        other_types="from_data" if types == "from_data" else "discover",
    )
    draft, _ = draft.for_unit(unit, leave_out)
    return draft.domain()


def _write(drawn: Release, output: str, beside: str | None) -> None:
    """Writes a release; if writing fails, the exception contains the release, already paid for."""
    try:
        write_release(drawn, output, beside=beside)
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
def _counted(plan: StagePlan, batches: Iterable[pa.RecordBatch]) -> Any:
    """Returns the exact sums for a stage; secret. A database may need counts outside its domain."""
    if isinstance(plan, DomainPlan):
        return counted_values(plan.columns, plan.whole, batches)
    if isinstance(plan, RecordsPlan):
        return counted_units(plan.declared, plan.whole.privacy_unit, plan.max_records, batches)
    accumulator = MarginalsAccumulator(plan.counted, plan.summary_tables)
    domain, unit, as_cells = plan.counted, plan.guarantee.privacy_unit, accumulator.as_cells
    if plan.left_out is None:
        encoded = (encode_records(domain, unit, as_cells, batch) for batch in batches)
        return _summary(accumulator, encoded, domain, plan.guarantee, plan.unit_costs), None
    both = [encode_all_records(domain, unit, as_cells, batch) for batch in batches]
    inside, outside = ([pair[side] for pair in both] for side in range(2))
    counts = HistogramAccumulator(plan.left_out.domain)
    left_out = _summary(counts, iter(outside), plan.left_out.domain, plan.guarantee, None)
    summary = _summary(accumulator, iter(inside), domain, plan.guarantee, plan.unit_costs)
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
        limit = guarantee.max_records_per_unit
        batches = iter([limit_records(words, batches, limit, cost_limit)])
    state = accumulator.create()
    for batch in batches:
        state = accumulator.add_batch(state, batch)
    return accumulator.from_shards(accumulator.to_shards(state))


@withhold_messages
def _drawn(plan: StagePlan, counts: Any) -> DomainRelease | UnitCounts | SyntheticDatabase:
    """Returns the release of a stage; the only step that draws noise."""
    noise = NoiseSource()
    if isinstance(plan, EarlierPlan):
        return plan.release(counts, noise)
    summary, left_out = counts
    drawn = draw_database(plan, summary, noise)
    if plan.left_out is None:
        return drawn
    return with_left_out(drawn, plan.left_out, left_out, noise)
