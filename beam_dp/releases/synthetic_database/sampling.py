"""Draws new records from a synthetic database, also given conditions or some of their values.

Records have the exact conditional distribution of the hypothesis. If a release has no hypothesis,
because weights of candidate records were fitted, its records are drawn in proportion to their
counts. All random bits are expanded from the public draw id and a seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer
from beam_dp.domain.ordered import BinnedAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError, magnitude
from beam_dp.installed import check_arrow
from beam_dp.models.conditional import Codes, conditional_codes
from beam_dp.models.elimination import num_clique_cells
from beam_dp.queries.where import Mask, read_condition
from beam_dp.releases.synthetic_database.records import FittedTables, arrow_table, code_type
from beam_dp.releases.synthetic_database.shards import random_words
from beam_dp.releases.synthetic_database.within_bins import Positions, values_within

if TYPE_CHECKING:
    import pyarrow as pa

MAX_ROWS = 2**28
_MAX_CELLS = 2**26  # of the tables that are in memory together


def sampled_table(
    fitted: FittedTables,
    positions: Mapping[str, Positions],
    draw_id: str,
    rows: int,
    where: str | None,
    seed: int,
) -> pa.Table:
    """Returns the table of ``SyntheticDatabase.sample``."""
    check_arrow()
    checked_integer("rows", rows, 1, MAX_ROWS)
    masks = {} if where is None else read_condition(fitted.domain, where)
    purpose = f"sample {where or ''}"
    codes, possible = drawn_codes(fitted, draw_id, masks, {}, rows, purpose, seed)
    if not possible.all():
        condition = "must be true for some records: the fitted distribution gives it the weight 0"
        raise InputError("where", where, condition)
    return drawn_table(fitted.domain, positions, draw_id, codes, purpose, seed)


def drawn_codes(
    fitted: FittedTables,
    draw_id: str,
    masks: Mapping[int, Mask],
    given: Mapping[int, Codes],
    num_rows: int,
    purpose: str,
    seed: int,
) -> tuple[list[Codes], NDArray[np.bool_]]:
    """Returns the codes of each attribute, and which rows the fitted distribution makes possible.

    ``masks``: the allowed codes by axis; ``given``: the codes of each row by axis, shape
    (num_rows,), in attributes that have no mask.
    """
    checked_integer("seed", seed, 0)
    if () in fitted.record_tables:  # there is no hypothesis
        return _from_records(fitted, masks, given, num_rows, f"{purpose} {seed} {draw_id}")
    domain = fitted.domain
    tables = [(domain.axes(names), table) for names, table in fitted.potentials]
    for each in domain.impossible:
        tables.append((each.axes, np.where(each.mask(domain.shape), -np.inf, 0.0)))
    kept = {axis: np.flatnonzero(mask) for axis, mask in masks.items()}
    for axis, codes in kept.items():
        # Without the other codes, all tables become smaller.
        tables = [
            (axes, table.take(codes, axes.index(axis)) if axis in axes else table)
            for axes, table in tables
        ]
    shape = [len(kept[axis]) if axis in kept else size for axis, size in enumerate(domain.shape)]
    free = [tuple(axis for axis in axes if axis not in given) for axes, _ in tables]
    num_cells = num_clique_cells([1 if i in given else n for i, n in enumerate(shape)], free)
    if num_cells > _MAX_CELLS:
        condition = "must be at most 2^26, the cells of the junction tree of its measured tables"
        raise InputError("release", magnitude(num_cells), f"{condition}, to be sampled")

    def uniforms(axis: int, start: int, number: int) -> NDArray[np.float64]:
        return _uniforms(f"{purpose} {seed} {domain.names[axis]} {start} {draw_id}", number)

    columns, possible = conditional_codes(shape, tables, given, num_rows, uniforms)
    return [kept[i][each] if i in kept else each for i, each in enumerate(columns)], possible


def _from_records(
    fitted: FittedTables,
    masks: Mapping[int, Mask],
    given: Mapping[int, Codes],
    num_rows: int,
    name: str,
) -> tuple[list[Codes], NDArray[np.bool_]]:
    """Draws among the released records that agree with each row, in proportion to their counts."""
    held = np.ones(len(fitted.counts), np.bool_)
    for axis, mask in masks.items():
        held &= mask[fitted.codes[axis]]
    places = np.flatnonzero(held)
    # Numbers equal combinations of given codes equally, in the records and in the rows.
    groups = np.zeros(len(places) + num_rows, np.int64)
    for axis, codes in given.items():
        both = np.concatenate([fitted.codes[axis][places].astype(np.int64), codes])
        groups = np.unique(groups * fitted.domain.shape[axis] + both, return_inverse=True)[1]
    own, wanted = groups[: len(places)], groups[len(places) :]
    order = np.argsort(own, kind="stable")
    places, own = places[order], own[order]
    ends = np.concatenate([[0], np.cumsum(fitted.counts[places])])
    low = ends[np.searchsorted(own, wanted, "left")]
    high = ends[np.searchsorted(own, wanted, "right")]
    points = low + (_uniforms(name, num_rows) * (high - low)).astype(np.int64)
    chosen = np.searchsorted(ends[1:], points, "right")
    possible = high > low
    columns = []
    for codes_of_records in fitted.codes:
        column = np.zeros(num_rows, np.int64)
        column[possible] = codes_of_records[places[chosen[possible]]]
        columns.append(column)
    return columns, possible


def _uniforms(name: str, number: int) -> NDArray[np.float64]:
    """Returns numbers in [0, 1) that any two names make independently."""
    words = random_words(name, number, "<u8")
    # With 52 bits, the product with a sum of weights stays below the sum.
    return (words >> np.uint64(12)).astype(np.float64) * 2.0**-52


def drawn_table(
    domain: Domain,
    positions: Mapping[str, Positions],
    draw_id: str,
    codes: list[Codes],
    purpose: str,
    seed: int,
) -> pa.Table:
    """Returns records as a table, with values within bins as the release's own records have."""
    narrow = [each.astype(code_type(n)) for each, n in zip(codes, domain.shape, strict=True)]
    values: dict[str, NDArray[Any]] = {}
    for attribute, column in zip(domain, narrow, strict=True):
        if isinstance(attribute, BinnedAttribute) and attribute.name in positions:
            name = f"{purpose} {seed} {draw_id} within {attribute.name}"
            words = random_words(name, len(column), "<u8")
            values[attribute.name] = values_within(
                attribute, column, words, positions[attribute.name]
            )
    return arrow_table(domain, narrow, values)
