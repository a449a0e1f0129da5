"""The metadata of a Dataflow Flex Template for each program, made from its flags.

`deploy/dataflow/NAME.json` is for `gcloud dataflow flex-template build --metadata-file`;
CONTRIBUTING.md says how to write it again. A test compares the files of the repository with
what this writes. The fields are those of `TemplateMetadata` and
`ParameterMetadata` of Dataflow's API, v1b3.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from beam_dp.flags.flag import Flag

from . import answer_queries, release_intervals, release_projection, release_synthetic_database

PROGRAMS = {
    "answer_queries": answer_queries,
    "release_intervals": release_intervals,
    "release_projection": release_projection,
    "release_synthetic_database": release_synthetic_database,
}
# What only a machine of one's own has: a folder that outlives the job, or a terminal.
_OF_ONE_MACHINE = ("start_from", "state", "resume", "expect_records")
_TYPES = {"input": "GCS_READ_FILE", "domain": "GCS_READ_FILE", "output": "GCS_WRITE_FOLDER"}
_REGEXES = {
    # Parameters are shown with the job: no password, and a file would go with the launcher.
    "ledger": [r"^postgresql://[^:@/?]+@[^@?]+$"],
    "dataset_id": [r"^.{1,200}$"],
}


def metadata(name: str) -> dict[str, Any]:
    """Returns the metadata of a program's template, as JSON values.

    A launcher passes each parameter as ``--name=value``, so switches are left out.
    """
    program = PROGRAMS[name]
    return {
        "name": f"beam_dp: {name.replace('_', ' ')}",
        "description": (program.__doc__ or "").partition("\n")[0],
        "streaming": False,
        "parameters": [
            _parameter(flag)
            for flag in program.FLAGS
            if not flag.is_switch and flag.name not in _OF_ONE_MACHINE
        ],
    }


def _parameter(flag: Flag) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": flag.name,
        "label": flag.name.replace("_", " ").capitalize(),
        "helpText": f"{flag.help[0].upper()}{flag.help[1:]}.",
        "isOptional": not flag.required,
        "paramType": _TYPES.get(flag.name, "ENUM" if flag.choices else "TEXT"),
    }
    if flag.choices:
        found["enumOptions"] = [{"value": value, "label": value} for value in flag.choices]
    if flag.default is not None:
        found["defaultValue"] = flag.default
    if flag.name in _REGEXES:
        found["regexes"] = _REGEXES[flag.name]
    return found


def text(name: str) -> str:
    """Returns the file of a program's metadata."""
    return json.dumps(metadata(name), indent=2, ensure_ascii=False) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the metadata of all programs into a folder; returns the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    if len(arguments) != 1 or not pathlib.Path(arguments[0]).is_dir():
        print("error: must be given one folder that exists", file=sys.stderr)
        return 2
    for name in PROGRAMS:
        path = pathlib.Path(arguments[0]) / f"{name}.json"
        path.write_text(text(name), encoding="utf-8")
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
