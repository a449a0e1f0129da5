"""Transforms for Beam YAML: see docs/yaml.md. ``PROVIDERS`` is the path of a file to include.

``ReleaseSyntheticDatabase``, ``ReleaseProjection``, ``ReleaseIntervals``, ``ReleaseWindows`` and
``AnswerQueries`` correspond to the programs of the same names, and have the flags as fields.
``ReleaseDomain`` and ``ReleaseRecordsPerUnit`` are the runs before a release that discover its
domain or its records per unit.
"""

from __future__ import annotations

import pathlib
from typing import Any

from beam_dp.flags.command_line import import_program

PROVIDERS = str(pathlib.Path(__file__).with_name("providers.yaml"))
_OF_STREAMS = ("ReadKafka", "ReleaseWindows", "WindowRows")
_NAMES = (
    "AnswerQueries", "AnswerRows", "IntervalRows", "MarginalRows", "ReadRecords", "ReadRows",
    "ReleaseDomain", "ReleaseIntervals", "ReleaseProjection", "ReleaseRecordsPerUnit",
    "ReleaseSyntheticDatabase", "SyntheticRows", *_OF_STREAMS,
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "yaml_windows" if name in _OF_STREAMS else "yaml_transforms"
    return getattr(import_program(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
