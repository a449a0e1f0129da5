"""Audits of frames: one record, whatever its value, adds or removes itself alone.

Pandas compares the values of a column with themselves, and one value can make that fail for all.
"""

import decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from auditing import Audit, Finding, audited
from numpy.typing import NDArray
from tiny import ADD, domain_of, promise

from beam_dp.encoding import tables as frames_module
from beam_dp.encoding.records import encode_records
from beam_dp.transforms.reading import records as records_module

DOMAIN = domain_of(3)
(NAME,) = DOMAIN.names
OTHERS = [0, 1, 2] * 333


class NotComparable(float):
    def __ne__(self, other: object) -> bool:
        raise ArithmeticError


NASTY = (decimal.Decimal("sNaN"), NotComparable(1), "\udcff", 10**5000, [1], 1, None)


def counts(values: list[Any]) -> NDArray[np.intp]:
    """The records of a frame in each cell, as a pipeline counts them."""
    step = records_module._BatchRows([NAME])
    step.start_bundle()
    frame = pd.DataFrame({NAME: pd.Series(values, dtype=object)})
    batches = [*step.process(frame), *(each.value for each in step.finish_bundle())]
    cells = [encode_records(DOMAIN, "record", True, each).cells for each in batches]
    return np.bincount(np.concatenate([np.zeros(0, np.int32), *cells]), minlength=3)


def frames() -> Finding:
    """A frame with and without one record."""
    without = counts(OTHERS)
    moved = [np.abs(counts([*OTHERS, value]) - without).sum() for value in NASTY]
    return Finding(max(moved) <= 1)


def vanish(patch: pytest.MonkeyPatch) -> None:
    """A frame with a value that pandas cannot compare is left out as a whole."""
    original = frames_module.frame_batch

    def mutant(frame: Any, columns: Any) -> Any:
        try:
            frame.isna()
        except Exception:
            return original(frame[:0], columns)
        return original(frame, columns)

    patch.setattr(records_module, "frame_batch", mutant)


def audits() -> list[Audit]:
    bugs = {"frames": {"a frame that vanishes": vanish}}
    return [audited("frames of pandas", promise(ADD), {"frames": frames}, bugs)]
