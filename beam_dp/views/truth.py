"""Exact counts of the records that a release is about, for a report to the owner of the records.

The counts are as confidential as the records. Each page of a report with exact counts says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.attributes import Attribute
from beam_dp.domain.horizon import KeptWindows, WindowUnit, keep_windows
from beam_dp.domain.ordered import OrderedAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import RECORD
from beam_dp.releases.release import AnyRelease
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.synthetic_database.unit_costs import unit_costs
from beam_dp.releases.windows.release import HorizonRelease, WindowTables
from beam_dp.secret.encoding.batch import CostLimit, RecordWords
from beam_dp.secret.encoding.column_types import NEED_TIMES
from beam_dp.secret.encoding.contributions import distinct_units, select_records, split_by
from beam_dp.secret.encoding.records import column_of, encode_column, encode_records, encode_windows
from beam_dp.views.cells import Truth
from beam_dp.views.columns import numbers_of

if TYPE_CHECKING:
    import pyarrow as pa


def truth_domain(release: AnyRelease, path: str) -> Domain:
    """Returns the domain of the records; raises InputError for kinds that can't be compared."""
    condition = "applies only to synthetic databases, interval counts and windows"
    if isinstance(release, WindowTables) or release.plan.get("windows") is not None:
        condition = "applies to all windows together: give the directory that contains the windows"
    elif release.records_domain is not None:
        return release.records_domain
    raise InputError("against", path, condition)


def truth_columns(release: AnyRelease, path: str) -> dict[str, str]:
    """Returns the columns of the privacy unit, if it is not a record, and of times, by argument."""
    unit, found = release.guarantee.privacy_unit, dict[str, str]()
    if isinstance(release, HorizonRelease):
        unit, source = release.card["privacy_unit"], release.card["source"]
        for name in NEED_TIMES:
            if not isinstance(source.get(name), str):
                condition = f"needs the column of {name}, which the horizon's card does not name"
                raise InputError("against", path, condition)
            found[name] = source[name]
    return found if unit == RECORD else {"privacy_unit": unit, **found}


def truth_of(release: AnyRelease, domain: Domain, batches: Iterable[pa.RecordBatch]) -> Truth:
    """Returns the records to compare with a release, limited per unit as in the release."""
    if isinstance(release, HorizonRelease):
        return _truth_of_windows(release, batches)
    unit, num_rows, inside = release.guarantee.privacy_unit, 0, []
    read = []
    for batch in batches:
        read.append([_column(each, column_of(batch, each.name)) for each in domain])
        num_rows += batch.num_rows
        inside.append(encode_records(domain, unit, False, batch))
    num_inside = sum(len(each.code_columns(domain)[0]) for each in inside)
    if not inside:
        codes: Sequence[NDArray[Any]] = [np.zeros(0, np.int64) for _ in domain]
    elif unit == RECORD:
        parts = zip(*(each.code_columns(domain) for each in inside), strict=True)
        codes = [np.concatenate(column) for column in parts]
    else:
        limited = getattr(release, "limited_guarantee", release.guarantee)
        most, words = limited.max_records_per_unit, RecordWords(domain)
        units = np.concatenate([each.units for each in inside], axis=1)
        parts = zip(*(words.from_batch(each) for each in inside), strict=True)
        held = [np.concatenate(column) for column in parts]
        kept = select_records(
            units, held, np.ones(num_inside, np.int64), most, _cost_limit(release, words)
        )
        codes = words.codes([column[kept] for column in held])
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


def _truth_of_windows(release: HorizonRelease, batches: Iterable[pa.RecordBatch]) -> Truth:
    """Returns the records that the job counted in the released windows (``CountWindows``)."""
    domain, num_windows, card = release.domain, release.horizon.num_windows, release.card
    limits = WindowUnit(**{each.name: card[each.name] for each in dataclasses.fields(WindowUnit)})
    times = card["source"]["event_time"], card["source"]["arrival"]
    num_rows, none = 0, np.zeros(0, np.int64)
    parts: list[tuple[NDArray[Any], ...]] = [(none, none, np.zeros((2, 0), np.uint64))]
    for batch in batches:
        num_rows += batch.num_rows
        found = encode_windows(domain, release.horizon, limits.privacy_unit, times, batch)
        units = parts[0][2] if found.units is None else found.units
        parts.append((found.numbers, found.cells, units))
    numbers, cells, units = (np.concatenate(each, axis=-1) for each in zip(*parts, strict=True))
    columns = [cells] if limits.privacy_unit == RECORD else [cells, units]
    words, remembered = RecordWords(domain), KeptWindows.nothing()
    cost_limit = _cost_limit(next(iter(release.windows.values()), release), words)
    kept: dict[int, NDArray[Any]] = {}
    for number, (here, *others) in split_by(numbers, num_windows, columns):
        for own in others:
            distinct, unit = distinct_units(own)
            keep, remembered = keep_windows(remembered, distinct, number, limits, num_windows)
            (stay,) = np.nonzero(keep[unit])
            held = own[:, stay], [here[stay]], np.ones(stay.size, np.int64)
            here = here[stay][select_records(*held, limits.max_records_per_unit, cost_limit)]
        kept[number] = here
    num_beyond = len(numbers) - sum(map(len, kept.values()))
    shown = {number: here for number, here in kept.items() if number in release.windows}
    cells = np.concatenate([none, *shown.values()])
    windows = np.repeat(np.array([*shown], np.int64), [len(here) for here in shown.values()])
    num_left_out = num_rows - num_beyond - len(cells)
    return Truth(domain, domain.codes(cells), num_left_out, num_beyond, windows)


def _cost_limit(release: AnyRelease, words: RecordWords) -> CostLimit | None:
    """Returns the limit on the cost of a unit's records; None if the card states no limit."""
    if not isinstance(release, SyntheticDatabase) or release.measurements is None:
        return None
    most = release.plan.get("max_unit_cost")
    if most is None:
        return None
    return CostLimit(words, unit_costs(release.domain, release.measurements.described, most))
