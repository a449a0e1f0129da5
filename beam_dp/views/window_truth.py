"""Exact counts of the records of the released windows of a stream, for a report to their owner."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beam_dp.domain.horizon import KeptWindows, WindowUnit, keep_windows
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import RECORD
from beam_dp.releases.windows.release import HorizonRelease
from beam_dp.secret.encoding.batch import RecordWords
from beam_dp.secret.encoding.contributions import distinct_units, select_records, split_by
from beam_dp.secret.encoding.layouts import NEED_TIMES
from beam_dp.secret.encoding.windows import encode_windows
from beam_dp.views.cells import Truth
from beam_dp.views.truth import cost_limit


def truth_columns(release: HorizonRelease, path: str) -> dict[str, str]:
    """Returns the columns of the privacy unit, if it is not a record, and of times, by argument."""
    unit, source = release.card["privacy_unit"], release.card["source"]
    columns = {} if unit == RECORD else {"privacy_unit": unit}
    for name in NEED_TIMES:
        if not isinstance(source.get(name), str):
            condition = f"needs the column of {name}, which the horizon's card does not name"
            raise InputError("against", path, condition)
        columns[name] = source[name]
    return columns


def truth_of(release: HorizonRelease, domain: Domain, batches: Iterable[pa.RecordBatch]) -> Truth:
    """Returns the records that the job counted in the released windows (``CountWindows``)."""
    num_windows, card = release.horizon.num_windows, release.card
    limits = WindowUnit(**{item.name: card[item.name] for item in dataclasses.fields(WindowUnit)})
    times = card["source"]["event_time"], card["source"]["arrival"]
    num_rows, none = 0, np.zeros(0, np.int64)
    parts: list[tuple[NDArray[Any], ...]] = [(none, none, np.zeros((2, 0), np.uint64))]
    for batch in batches:
        num_rows += batch.num_rows
        coded = encode_windows(domain, release.horizon, limits.privacy_unit, times, batch)
        units = parts[0][2] if coded.units is None else coded.units
        parts.append((coded.numbers, coded.cells, units))
    numbers, cells, units = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
    columns = [cells] if limits.privacy_unit == RECORD else [cells, units]
    words, remembered = RecordWords(domain), KeptWindows.nothing()
    most_cost = cost_limit(next(iter(release.windows.values()), release), words)
    kept: dict[int, NDArray[Any]] = {}
    for number, (here, *others) in split_by(numbers, num_windows, columns):
        for of_unit in others:
            distinct, unit = distinct_units(of_unit)
            keep, remembered = keep_windows(remembered, distinct, number, limits, num_windows)
            (stay,) = np.nonzero(keep[unit])
            here, counts = here[stay], np.ones(stay.size, np.int64)
            limit = limits.max_records_per_unit
            here = here[select_records(of_unit[:, stay], [here], counts, limit, most_cost)]
        kept[number] = here
    num_beyond = len(numbers) - sum(map(len, kept.values()))
    shown = {number: here for number, here in kept.items() if number in release.windows}
    cells = np.concatenate([none, *shown.values()])
    windows = np.repeat(np.array([*shown], np.int64), [len(here) for here in shown.values()])
    num_left_out = num_rows - num_beyond - len(cells)
    return Truth(domain, domain.codes(cells), num_left_out, num_beyond, windows)
