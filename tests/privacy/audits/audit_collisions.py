"""Audits of what a unit may keep where others hold records that were made to collide.

As in ``audit_end_to_end``, with other units that each hold two records of equal hashes, of which
one may stay. A collection has no order, so that neighbours may come in any two: those of one side
come in the order of their places, those of the other the other way round.
"""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa
from audit_end_to_end import BATCH, PLACES, REPLICAS, noisy_table, replicas_told_apart
from auditing import Audit, Finding, Patch, audited
from numpy.typing import NDArray
from tiny import ADD

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.encoding import contributions
from beam_dp.encoding.units import mix, unit_fingerprints
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import Workload
from beam_dp.testing import audit

OTHERS = 3  # units of a replica
NOTHING, BITS = (16, 16, 14), (16, 16, 16, 14)
DOMAIN = Domain(
    (
        IntegerAttribute("replica", 0, REPLICAS - 1),
        IntegerAttribute("place", 0, PLACES - 1),
        # These share the first two's word, and the others have one of 62 bits.
        *(IntegerAttribute(f"nothing {i}", 0, 2**bits - 1) for i, bits in enumerate(NOTHING)),
        *(IntegerAttribute(f"detail {i}", 0, 2**bits - 1) for i, bits in enumerate(BITS)),
    )
)
CELL, DETAIL = DOMAIN.groups
WORKLOAD = Workload(DOMAIN, (("replica", "place"),))
FIRST, LAST = 0, 2  # the places of two records that collide


@functools.cache
def colliding_units() -> tuple[NDArray[np.str_], NDArray[np.int64]]:
    """Units with the detail that, at the last place, gives the hash of detail 0 at the first.

    Returns:
        Names and details, shape (REPLICAS, OTHERS).
    """
    replica = np.repeat(np.arange(REPLICAS), OTHERS)
    first, last = (
        CELL.cell_index([replica, np.full_like(replica, place), *[0 * replica] * len(NOTHING)])
        for place in (FIRST, LAST)
    )
    names = np.full(replica.size, "", "<U32")
    details = np.zeros(replica.size, np.uint64)
    left = np.arange(replica.size)
    attempt = 0
    while left.size:
        tried = np.array([f"other {number} {attempt}" for number in left.tolist()])
        (high, low), _ = unit_fingerprints(pa.array(tried.tolist()))
        start = mix(high ^ mix(low))
        detail = mix(start ^ first[left].astype(np.uint64))
        detail ^= mix(start ^ last[left].astype(np.uint64))
        fits = detail < np.uint64(DETAIL.num_cells)
        names[left[fits]], details[left[fits]] = tried[fits], detail[fits]
        left = left[~fits]
        attempt += 1
    return names.reshape(-1, OTHERS), details.astype(np.int64).reshape(-1, OTHERS)


@functools.cache
def batches() -> list[pa.RecordBatch]:
    names, details = colliding_units()
    replicas, places, of_records, people = [], [], [], []
    for replica in range(REPLICAS):
        records = [(FIRST, 5, f"own {replica}")] if replica % 2 == 0 else []
        for name, detail in zip(names[replica].tolist(), details[replica].tolist(), strict=True):
            pair = [(FIRST, 0, name), (LAST, detail, name)]
            records += pair if replica % 2 == 0 else pair[::-1]
        for place, detail, name in records:
            replicas.append(replica)
            places.append(place)
            of_records.append(detail)
            people.append(name)
    nothing = np.zeros(len(people), np.int64)
    codes = [replicas, places, *[nothing] * len(NOTHING), *DETAIL.codes(np.array(of_records))]
    table = pa.table({**dict(zip(DOMAIN.names, codes, strict=True)), "person": people})
    return table.to_batches(max_chunksize=BATCH)


def black_box(guarantee: Guarantee) -> Finding:
    noisy = noisy_table(WORKLOAD, guarantee, batches()).reshape(REPLICAS, PLACES)
    # Of each pair the lower words stay, in whatever order they come.
    clipped = np.clip(noisy - np.array([OTHERS, 0, 0]), 0, 1).astype(np.int64)
    cells = [audit.discrete_laplace(guarantee.epsilon**-1, count, 0, 1) for count in (0, 1)]
    laws = [audit.product_law([cells[held], cells[0], cells[0]]) for held in (1, 0)]
    return replicas_told_apart(guarantee, clipped, *laws)


def tie_by_arrival(patch: Patch) -> None:
    """Records of equal hashes count as identical, and the first that comes stands for them."""

    def together(hashes, columns, unit=None):
        keys = [hashes] if unit is None else [hashes, unit]
        order = np.lexsort(keys)
        return order, contributions._new_kinds(keys, order)

    def group(units):
        order = np.lexsort((units[1], units[0]))
        new = contributions._new_kinds(list(units), order)
        return order, np.cumsum(new) - 1

    patch.setattr(contributions, "_identical_together", together)
    patch.setattr(contributions, "_group", group)


def audits() -> list[Audit]:
    guarantee = Guarantee(2.0, 0.0, ADD, "person", 1)
    bugs = {"black box": {"tie by arrival order": tie_by_arrival}}
    name = "whole pipeline, colliding records"
    checks = {"black box": black_box}
    return [audited(name, guarantee, checks, bugs, guarantee, jobs=checks)]
