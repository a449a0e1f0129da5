"""Exact counts of the records that a release is about, for a report to the owner of the records.

The counts are as private as the records. Each page of a report with exact counts says so.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.encoding.batch import CostLimit, RecordWords
from beam_dp.encoding.contributions import limit_records
from beam_dp.encoding.records import encode_records
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import RECORD
from beam_dp.releases.release import AnyRelease
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.synthetic_database.unit_costs import unit_costs
from beam_dp.reports.cells import Groups

if TYPE_CHECKING:
    import pyarrow as pa


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Truth:
    """The private records that a release is about; see ``Counts``."""

    domain: Domain
    codes: Sequence[NDArray[Any]]  # the codes of each attribute, shape (num_records,)
    num_left_out: int
    num_beyond: int = 0

    def __repr__(self) -> str:
        return "Truth(secret)"

    @property
    def num_records(self) -> int:
        """The number of records that are counted."""
        return len(self.codes[0])

    def of(self, axes: tuple[int, ...], groups: Groups) -> list[int]:
        """Returns the count of each combination of groups; the last axis changes fastest."""
        shape = [len(each) for each in groups]
        index = np.zeros(self.num_records, np.int64)
        inside = np.ones(self.num_records, np.bool_)
        for axis, group in zip(axes, groups, strict=True):
            places = np.full(self.domain.shape[axis], -1)
            for place, each in enumerate(group):
                places[each.codes] = place
            found = places[self.codes[axis]]
            inside &= found >= 0
            index = index * len(group) + found
        counts: list[int] = np.bincount(index[inside], minlength=math.prod(shape)).tolist()
        return counts


def truth_domain(release: AnyRelease, path: str) -> Domain:
    """Returns the domain of the records; raises InputError for kinds that can't be compared."""
    if release.records_domain is None:
        condition = "applies only to synthetic databases and interval counts"
        raise InputError("against", path, condition)
    return release.records_domain


def truth_of(release: AnyRelease, domain: Domain, batches: Iterable[pa.RecordBatch]) -> Truth:
    """Returns the private records of a release, with the release's limit per privacy unit."""
    unit, num_rows, inside = release.guarantee.privacy_unit, 0, []
    for batch in batches:
        num_rows += batch.num_rows
        inside.append(encode_records(domain, unit, False, batch))
    num_inside = sum(len(each.code_columns(domain)[0]) for each in inside)
    kept = inside
    if unit != RECORD:
        most, words = release.guarantee.max_records_per_unit, RecordWords(domain)
        kept = [limit_records(words, iter(inside), most, _cost_limit(release, words))]
    parts = [each.code_columns(domain) for each in kept]
    codes = [np.concatenate(column) for column in zip(*parts, strict=True)]
    if not codes:
        codes = [np.zeros(0, np.int64) for _ in domain]
    return Truth(domain, codes, num_rows - num_inside, num_inside - len(codes[0]))


def _cost_limit(release: AnyRelease, words: RecordWords) -> CostLimit | None:
    """Returns the limit on the cost of a unit's records; None if the card states no limit."""
    if not isinstance(release, SyntheticDatabase) or release.measurements is None:
        return None
    most = release.plan.get("max_unit_cost")
    if most is None:
        return None
    return CostLimit(words, unit_costs(release.domain, release.measurements.described, most))
