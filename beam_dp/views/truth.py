"""Exact counts of the records that a release is about, for a report to the owner of the records.

The counts are as confidential as the records. Each page of a report with exact counts says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beam_dp.domain.attributes import Attribute
from beam_dp.domain.ordered import OrderedAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import RECORD
from beam_dp.releases.release import AnyRelease
from beam_dp.releases.synthetic_database.noisy_tables import unit_costs
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.secret.encoding.batch import CostLimit, RecordWords
from beam_dp.secret.encoding.contributions import select_records
from beam_dp.secret.encoding.records import column_of, encode_column, encode_records
from beam_dp.views.cells import Truth, numbers_of


def truth_domain(release: AnyRelease, path: str) -> Domain:
    """Returns the domain of the records; raises InputError for kinds that can't be compared."""
    condition = "applies only to synthetic databases, interval counts and windows"
    if release.KIND == "window_tables" or release.plan.get("windows") is not None:
        condition = "applies to all windows together: give the directory that contains the windows"
    elif release.records_domain is not None:
        return release.records_domain
    raise InputError("against", path, condition)


def truth_columns(release: AnyRelease, path: str) -> dict[str, str]:
    """Returns the column of the privacy unit, if it is not a record, by argument."""
    unit = release.guarantee.privacy_unit
    return {} if unit == RECORD else {"privacy_unit": unit}


def truth_of(
    release: AnyRelease,
    domain: Domain,
    batches: Iterable[pa.RecordBatch],
    most_per_unit: int | None = None,
) -> Truth:
    """Returns the records to compare with a release, limited per unit as in it, or otherwise."""
    unit, num_rows, inside = release.guarantee.privacy_unit, 0, []
    read = []
    for batch in batches:
        read.append([_column(attribute, column_of(batch, attribute.name)) for attribute in domain])
        num_rows += batch.num_rows
        inside.append(encode_records(domain, unit, False, batch))
    num_inside = sum(len(block.code_columns(domain)[0]) for block in inside)
    if not inside:
        codes: Sequence[NDArray[Any]] = [np.zeros(0, np.int64) for _ in domain]
    elif unit == RECORD:
        parts = zip(*(block.code_columns(domain) for block in inside), strict=True)
        codes = [np.concatenate(column) for column in parts]
    else:
        limited = getattr(release, "limited_guarantee", release.guarantee)
        limit, words = most_per_unit or limited.max_records_per_unit, RecordWords(domain)
        units = np.concatenate([block.units for block in inside], axis=1)
        parts = zip(*(words.from_batch(block) for block in inside), strict=True)
        cells = [np.concatenate(column) for column in parts]
        kept = select_records(
            units, cells, np.ones(num_inside, np.int64), limit, cost_limit(release, words)
        )
        codes = words.codes([column[kept] for column in cells])
    num_beyond = num_inside - len(codes[0])
    columns = zip(*read, strict=True)
    rows = [list(map(np.concatenate, zip(*parts, strict=True))) for parts in columns]
    return Truth(domain, codes, num_rows - num_inside, num_beyond, columns=rows)


def _column(attribute: Attribute, column: pa.Array) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the codes of a column, and its numbers if its levels have an order."""
    codes = encode_column(attribute, column)
    if not isinstance(attribute, OrderedAttribute):
        return codes, codes[:0]
    return codes, np.where(codes == attribute.null_code, np.nan, numbers_of(attribute, column))


def cost_limit(release: AnyRelease, words: RecordWords) -> CostLimit | None:
    """Returns the limit on the cost of a unit's records; None if the card states no limit."""
    if not isinstance(release, SyntheticDatabase) or release.measurements is None:
        return None
    limit = release.plan.get("max_unit_cost")
    if limit is None:
        return None
    return CostLimit(words, unit_costs(release.domain, release.measurements.described, limit))
