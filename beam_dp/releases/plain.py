"""Plain JSON values, and the versions of libraries, as releases hold them."""

from __future__ import annotations

import functools
import importlib.metadata
import math
import platform
from collections.abc import Mapping
from typing import Any

import numpy as np

from beam_dp.errors import InputError

_LIBRARIES = ("beam_dp", "numpy", "scipy", "opendp")


@functools.cache
def library_versions() -> dict[str, str]:
    """Returns the versions that a card records: Python, this package, what it computes with."""
    versions = {"python": platform.python_version()}
    for library in _LIBRARIES:
        try:
            versions[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            versions[library] = "not installed"
    return versions


def plain_json(value: Any) -> Any:
    """Returns the value as JSON holds it: numpy numbers and tuples replaced.

    Raises:
        InputError: if it holds anything else, or a number that is not finite.
    """
    if isinstance(value, np.generic):
        return plain_json(value.item())
    if isinstance(value, Mapping):
        return {str(key): plain_json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError("card", value, "must hold finite numbers only")
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise InputError("card", type(value).__name__, "must hold JSON values only")
