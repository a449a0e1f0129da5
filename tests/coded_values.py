"""Codes of Python values, as of an Arrow column that has no one type for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from beam_dp.domain import Attribute
from beam_dp.encoding.columns import _code_objects, _signed
from beam_dp.encoding.levels import levels_of


def encode_values(attribute: Attribute, values: Iterable[object]) -> np.ndarray[Any, Any]:
    return _signed(_code_objects(levels_of(attribute), list(values)), attribute)
