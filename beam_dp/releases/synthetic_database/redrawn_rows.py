"""Draws the first rows of a release again, and compares them with the file that contains them."""

from __future__ import annotations

import numpy as np

from beam_dp.releases.synthetic_database import records_avro, records_columns
from beam_dp.releases.synthetic_database.records import is_ascending
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.synthetic_database.within_bins import ROUNDING
from beam_dp.storage.store import DamagedFileError

_MOST_ROWS = 2**16


def check_first_rows(release: SyntheticDatabase, num_files: int, data: bytes) -> None:
    """Refuses the first file of records unless the draw makes its rows with this card.

    Order and values follow from the draw id, the domain and ``within_bins``. Another machine may
    round the end of a piece of a bin otherwise, which moves values by a millionth of the bin.
    """
    low, high = (release.first_rows(num_files, shift) for shift in (-1 / ROUNDING, 1 / ROUNDING))
    files = records_avro if release.records_format == "avro" else records_columns
    parts = files.rows_in_order(
        data, release.domain, release.records_format, is_drawn=bool(release.drawn)
    )
    start, is_same, is_sorted = 0, True, True
    for codes, values in parts:
        records = low.records[start : start + len(codes[0])]
        rows = slice(start, start + len(records))
        is_same = is_same and all(
            np.array_equal(column[records], stored[: len(records)])
            for column, stored in zip(release.codes, codes, strict=True)
        )
        for name, stored in values.items():
            drawn = stored[: len(records)]
            is_same = is_same and bool(
                ((low.values[name][rows] <= drawn) & (drawn <= high.values[name][rows])).all()
            )
        is_sorted = is_sorted and is_ascending(codes, may_repeat=True)
        start += len(codes[0])
        if start >= _MOST_ROWS:
            break
    # Version 0.1.0 wrote records in the order of codes, with values that were drawn otherwise.
    if not (is_same or (is_sorted and release.within_bins != "density")):
        raise DamagedFileError(
            "has rows in another order, or with other values within bins, than the draw_id, domain"
            " and within_bins of its card give"
        )
