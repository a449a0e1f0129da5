"""Columns of the domains that other tools for synthetic data read: sizes by name.

``{"age": 85, "sex": 2}``, or an object an attribute, as PrivMRF has it: ``{"age": {"type":
"discrete", "domain": 85}}``. Instead of a size there may be ``values``, or ``min`` and ``max``.
"""

from __future__ import annotations

from typing import Any

from beam_dp.checks import is_integer, is_number
from beam_dp.errors import InputError, shown
from beam_dp.schemas.columns import Column

_SIZES = ("domain", "size")
_CONTINUOUS = ("continuous", "numeric", "numerical", "float", "real")


def sizes_columns(schema: Any, source: str) -> list[Column]:
    """Returns the columns of such a domain.

    Args:
        schema: parsed JSON.
        source: where it came from, for messages.

    Raises:
        InputError: if it is none.

    Example:
        >>> sizes_columns({"age": {"type": "discrete", "domain": 85}}, "d.json")[0].high
        84
    """
    if not isinstance(schema, dict) or not schema:
        raise InputError("schema", source, "must be an object of sizes by name")
    return [_column(str(name), entry, source) for name, entry in schema.items()]


def _column(name: str, entry: Any, source: str) -> Column:
    told = entry if isinstance(entry, dict) else {"domain": entry}
    size = next((told[key] for key in _SIZES if key in told), None)
    low, high = (told.get("min"), told.get("max"))
    values = told.get("values", size if isinstance(size, list) else None)
    is_continuous = str(told.get("type", "")).lower() in _CONTINUOUS
    if is_continuous and isinstance(values, list) and len(values) == 2:
        (low, high), values, size = values, None, None
    if is_integer(size) and size >= 1:
        return Column(name, "integer", low=0, high=size - 1, is_domain=True)
    if isinstance(values, list):
        column = Column(name, "categorical").listing(values)
        if column.values:
            return column
    if is_number(low) and is_number(high):
        is_whole = is_integer(low) and is_integer(high) and not is_continuous
        return Column(name, "integer" if is_whole else "numeric").within(low, high)
    condition = f"{shown(name)} must have a size >= 1, a list of values, or min and max"
    raise InputError("schema", source, condition)
