"""Files of sparse queries: JSON, or one key a line."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from beam_dp.checks import check_choice
from beam_dp.domain.texts import checked_json, integer_key, json_text
from beam_dp.errors import InputError
from beam_dp.queries.sparse import Element, SparseQuery

_FORM = "; must be a key a line, or a JSON object with sparse, in UTF-8"


def read_sparse_query(
    path: str | Path, *, keys: Literal["text", "integer"] = "text"
) -> SparseQuery:
    """Returns the query in a file: membership of a set of keys, or values by key.

    A file whose name ends in ``.json`` holds what ``SparseQuery.from_json`` takes. Any other one
    holds a key a line, each once; after a tab there may be its value, 1 if there is none. Lines end
    with a newline, or all of them with a carriage return and a newline.

    Args:
        path: of the file, UTF-8.
        keys: whether the keys of lines are text or integers.

    Raises:
        InputError: naming the file, and the line if one is refused.
    """
    check_choice("keys", keys, ("text", "integer"))
    text = json_text("query", Path(path), _FORM)  # line ends as they are: a key may hold one
    if Path(path).suffix == ".json":
        return SparseQuery.from_json(checked_json("query", str(path), text))
    return _from_lines(str(path), text, keys)


def _from_lines(path: str, text: str, keys: str) -> SparseQuery:
    values: dict[Element, float] = {}
    # Not splitlines, which also splits at separators that a key may hold.
    end = "\r\n" if text.count("\r\n") == text.count("\n") > 0 else "\n"
    lines = text.removesuffix(end).split(end) if text else []
    for number, line in enumerate(lines, 1):
        where = f"{path}, line {number}"
        written, tab, weight = line.rpartition("\t")
        if not tab:
            written, weight = weight, "1"
        key = _key(where, written, keys)
        if key in values:
            raise InputError(where, key, "must be given once: an element is repeated")
        values[key] = _value(where, weight)
    return SparseQuery(values)


def _key(where: str, written: str, keys: str) -> Element:
    if not written:
        raise InputError(where, written, "must hold a key")
    if keys == "text":
        return written
    number = integer_key(written.encode("utf-8", "surrogatepass"))
    if number is None:
        raise InputError(where, written, "must hold an integer key, without leading zeros")
    return number


def _value(where: str, written: str) -> float:
    try:
        value = float(written)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        condition = "after the tab must be a number from 0 to 1, or no tab at all"
        raise InputError(where, written, condition)
    return value
