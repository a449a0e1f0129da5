"""How the card of a release for sparse queries describes its keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from beam_dp.checks import check_choice
from beam_dp.errors import InputError
from beam_dp.queries.sparse import KEY_TYPES, KeyType
from beam_dp.queries.sparse_reader import KEY_RULE

_AS_WRITTEN = 1  # the rule of cards that name none


def key_type_of(parameters: Mapping[str, Any]) -> KeyType | None:
    """Returns the type of a release's keys, from its public parameters; None if not stated."""
    columns = _columns(parameters)
    if columns is None:
        return None
    key_type: Any = columns.get("key_type")
    check_choice("key_type", key_type, KEY_TYPES)
    return cast(KeyType, key_type)


def key_rule_of(parameters: Mapping[str, Any]) -> int:
    """Returns the rule by which records were read as keys, from a release's public parameters.

    By rule 1 a key is the text as it was written; by rule 2 the integer that was written as a
    float is that integer (``plain_integer``). Queries are read by the rule of their release.

    Raises:
        InputError: if it is a rule that this version does not know.
    """
    columns = _columns(parameters)
    rule = _AS_WRITTEN if columns is None else columns.get("rule", _AS_WRITTEN)
    if type(rule) is not int or not _AS_WRITTEN <= rule <= KEY_RULE:
        condition = f"must be from {_AS_WRITTEN} to {KEY_RULE}: a newer version wrote it"
        raise InputError("the rule of keys", rule, condition)
    return rule


def _columns(parameters: Mapping[str, Any]) -> Mapping[str, Any] | None:
    columns = parameters.get("key")
    if columns is not None and not isinstance(columns, dict):
        raise InputError("key", str(columns), "must be a JSON object")
    return columns
