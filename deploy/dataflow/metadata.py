"""Prints the metadata of a Dataflow Flex Template, made from the flags of its program.

    python deploy/dataflow/metadata.py release_intervals > release_intervals.json

For `gcloud dataflow flex-template build --metadata-file`. The fields are those of
`TemplateMetadata` and `ParameterMetadata` of Dataflow's API, v1b3.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from beam_dp.flags.command_line import description_of_program, flags_of_program
from beam_dp.flags.flag import Flag

PROGRAMS = (
    "answer_queries",
    "release_intervals",
    "release_projection",
    "release_synthetic_database",
    "run_yaml",  # also for windows of a topic; release_windows needs a folder that workers share
)
# What only a machine of one's own has: a folder that outlives the job, or a terminal.
_OF_ONE_MACHINE = ("start_from", "state", "resume", "expect_records")
_TYPES = {
    **dict.fromkeys(("domain", "input", "yaml_pipeline_file"), "GCS_READ_FILE"),
    "output": "GCS_WRITE_FOLDER",
}
_REGEXES = {
    # Parameters are shown with the job: no password, and a file would go with the launcher.
    "ledger": [r"^postgresql://[^:@/?]+@[^@?]+$"],
    "dataset_id": [r"^.{1,200}$"],
}


def metadata(name: str) -> dict[str, Any]:
    """Returns the metadata of a program's template, as JSON values.

    A launcher passes each parameter as ``--name=value``, so switches are left out.
    """
    return {
        "name": f"beam_dp: {name.replace('_', ' ')}",
        "description": description_of_program(name),
        "streaming": False,
        "parameters": [
            _parameter(flag)
            for flag in flags_of_program(name)
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


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in PROGRAMS:
        sys.exit(f"error: must be given the name of one program: {', '.join(PROGRAMS)}")
    sys.stdout.write(json.dumps(metadata(sys.argv[1]), indent=2, ensure_ascii=False) + "\n")
