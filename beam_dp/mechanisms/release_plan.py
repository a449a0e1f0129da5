"""`plan_release`: the plan of any mechanism that releases a synthetic database."""

from __future__ import annotations

import dataclasses

from beam_dp.domain import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms.left_out import plan_left_out, share_guarantee
from beam_dp.mechanisms.marginals.plan import (
    Mechanism,
    NumRecords,
    Plan,
)
from beam_dp.mechanisms.small_db.small_db import SmallDB
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.queries.workload import Workload


def plan_release(
    mechanism: Mechanism,
    domain: Domain,
    workload: Workload | LinearWorkload,
    guarantee: Guarantee,
    num_records: NumRecords,
    count_left_out: bool = False,
) -> Plan:
    """Returns what a mechanism would do for a workload of either kind.

    Args:
        mechanism: that would do it.
        domain: the universe.
        workload: the marginals, or for ``SmallDB`` any linear queries.
        guarantee: of all that is released.
        num_records: public, or ``"noisy"``.
        count_left_out: whether the records outside the domain are counted, too, from 5 % of the
            budget: see ``plan_left_out``.

    Raises:
        InputError: if the mechanism refuses it; all but ``SmallDB`` answer marginals.
    """
    if not count_left_out:
        return _plan(mechanism, domain, workload, guarantee, num_records)
    plan = _plan(mechanism, domain, workload, share_guarantee(guarantee), num_records)
    left_out = plan_left_out(domain, guarantee, plan.loss)
    return dataclasses.replace(plan, loss=left_out.loss, left_out=left_out)


def _plan(
    mechanism: Mechanism,
    domain: Domain,
    workload: Workload | LinearWorkload,
    guarantee: Guarantee,
    num_records: NumRecords,
) -> Plan:
    if isinstance(workload, Workload):
        return mechanism.plan(domain, workload, guarantee, num_records)
    if isinstance(mechanism, SmallDB):
        return mechanism.plan(domain, workload, guarantee, num_records)
    given = f"{len(workload):,} linear queries"
    raise InputError("workload", given, f"must be of marginals for {mechanism.name}")
