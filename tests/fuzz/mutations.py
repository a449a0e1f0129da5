"""Damage to bytes, JSON and releases, as a list of choices says.

Bytes are the choices: hypothesis, atheris and chance all make bytes.
"""

import atexit
import copy
import json
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")
CARD = "card.json"
# Texts that stand in JSON for what json.dumps does not write.
RAW = {
    "@deep list": "[" * 3000 + "]" * 3000,
    "@rather deep list": "[" * 490 + "]" * 490,
    "@deep object": '{"a":' * 700 + "1" + "}" * 700,
    "@long integer": "9" * 5000,
    "@rather long integer": "9" * 4200,
    "@infinity": "1e999",
    "@NaN": "NaN",
    "@half a letter": '"\\ud800"',
    "@twice": '{"a": 1, "a": 2}',
}
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 50, 255, 2**31, 2**53, 2**62, 2**63 - 1, 2**63, -(2**63),
    10**400, 0.5, -0.5, 1e-300, 1e308, "", "a", "x" * 1000, "other", "null", "\0", "\n", "../x",
    "é", "record", "integer", "numeric", "boolean", "categorical", "noisy", "public", "hours",
    "age", "member", [], {}, [[]], [0], ["a"], {"a": 2}, [1, 2, 3], list(range(400)), *RAW,
)  # fmt: skip


class Choices:
    """Consumes bytes from the front; when they are used up, every choice is the first one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def __bool__(self) -> bool:
        return self._position < len(self._data)

    def number(self, limit: int) -> int:
        """An integer in 0..limit-1."""
        width = max(1, ((limit - 1).bit_length() + 7) // 8)
        return int.from_bytes(self.bytes(width), "little") % limit

    def bytes(self, length: int) -> bytes:
        taken = self._data[self._position : self._position + length]
        self._position += length
        return taken

    def one_of(self, options: Sequence[T]) -> T:
        return options[self.number(len(options))]

    def rest(self) -> bytes:
        return self.bytes(max(0, len(self._data) - self._position))


def mutate_bytes(good: bytes, choices: Choices) -> bytes:
    """Returns the bytes after a few flips, cuts, insertions, repetitions and swaps."""
    data = bytearray(good)
    while choices:
        how = choices.number(6)
        place = choices.number(len(data) + 1)
        if how == 0 and place < len(data):
            data[place] = choices.number(256)
        elif how == 1 and place < len(data):
            data[place] ^= 1 << choices.number(8)
        elif how == 2:
            del data[place:]
        elif how == 3:
            data[place:place] = choices.bytes(choices.number(12))
        elif how == 4:
            del data[place : place + choices.number(40)]
        else:
            data[place:place] = data[place : place + choices.number(64)]
    return bytes(data)


def mutate_json(good: Any, choices: Choices) -> str:
    """Returns JSON text of the value after a few replacements, deletions, repetitions, renames."""
    root = {"": copy.deepcopy(good)}
    while choices:
        places = list(_places(root))
        holder, key = choices.one_of(places)
        how = choices.number(6)
        is_root = holder is root
        if how <= 1 or is_root:
            holder[key] = copy.deepcopy(choices.one_of(VALUES))
        elif how == 2:
            del holder[key]
        elif how == 3 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif how == 3:
            holder[str(choices.one_of(VALUES))] = holder.pop(key)
        elif how == 4:
            other, place = choices.one_of(places)
            holder[key] = copy.deepcopy(other[place])
        else:
            holder[key] = choices.number(2**32) - 2**16
        if len(json.dumps(root)) > 2**15:  # what grows by repetition, doubles
            break
    text = json.dumps(root[""])
    for name, raw in RAW.items():
        text = text.replace(json.dumps(name), raw)
    return text


def _places(value: Any) -> Any:
    """Every holder and key in a JSON value, the outermost first."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = [(value, key, below) for key, below in items]
    yield from ((holder, key) for holder, key, _ in found)
    for _, _, below in found:
        if isinstance(below, dict | list):
            yield from _places(below)


def raised_by(action: Callable[[], object], declared: type[Exception]) -> Exception | None:
    """Runs the action; anything but the declared error, in one short line, passes through."""
    try:
        action()
    except declared as error:
        line = str(error)
        assert "\n" not in line, line
        assert len(line) < 5000, line[:200]
        return error
    return None


@cache
def fuzz_folder() -> pathlib.Path:
    """One folder a process, in memory where the system has such."""
    shared = "/dev/shm"
    folder = tempfile.mkdtemp(dir=shared if pathlib.Path(shared).is_dir() else None)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return pathlib.Path(folder)
