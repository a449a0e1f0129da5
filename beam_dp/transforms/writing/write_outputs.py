"""A check that no two releases of a pipeline have the same directory."""

from __future__ import annotations

import os
from weakref import WeakKeyDictionary

import apache_beam as beam

from beam_dp.errors import InputError
from beam_dp.storage.of_url import is_url

_TAKEN: WeakKeyDictionary[beam.Pipeline, set[str]] = WeakKeyDictionary()


def refuse_taken_output(pipeline: beam.Pipeline, directory: str | os.PathLike[str]) -> None:
    """Refuses a directory that another writer of the pipeline has taken, under whatever path.

    Raises:
        InputError: if one has.
    """
    if _place(directory) in _TAKEN.get(pipeline, ()):
        condition = "must be another directory: this pipeline writes there already"
        raise InputError("output", os.fspath(directory), condition)


def take_output(pipeline: beam.Pipeline, directory: str | os.PathLike[str]) -> None:
    """Remembers that a pipeline writes to a directory.

    Raises:
        InputError: if it did already.
    """
    refuse_taken_output(pipeline, directory)
    _TAKEN.setdefault(pipeline, set()).add(_place(directory))


def outputs_of(pipeline: beam.Pipeline) -> list[str]:
    """Returns the directories that a pipeline writes to, sorted; local ones as real paths."""
    return sorted(_TAKEN.get(pipeline, ()))


def _place(directory: str | os.PathLike[str]) -> str:
    """One text for all paths of a directory; links and ``..`` mean nothing in a bucket."""
    text = os.fspath(directory)
    return text.rstrip("/") if is_url(text) else os.path.realpath(text)
