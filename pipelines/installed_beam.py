"""The flags and runners of the installed Beam, which `make generated` writes to a file."""

from __future__ import annotations

import argparse
import importlib.metadata
from typing import Any

from apache_beam.options import pipeline_options as beam_options

from beam_dp.flags.flag import Parser

_TYPES: dict[Any, str | None] = {None: None, str: None, int: "int", float: "float"}


class ThreadOptions(beam_options.PipelineOptions):
    """The flag for threads, which is passed like Beam's own; Beam has none."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--num_threads", type=int)


def installed_beam() -> dict[str, Any]:
    """Returns the version of Beam, the names of its runners, and its flags."""
    parser = Parser(add_help=False, conflict_handler="resolve")
    # A method of Beam's own parser, for options that a job template fills in later.
    parser.add_value_provider_argument = parser.add_argument  # type: ignore[attr-defined]
    for options in beam_options.PipelineOptions.__subclasses__():
        # Some flags exist only after certain modules of Beam are imported.
        if options.__module__ == beam_options.__name__ or options is ThreadOptions:
            options._add_argparse_args(parser)
    return {
        "version": importlib.metadata.version("apache-beam"),
        "runners": [*beam_options.StandardOptions.KNOWN_RUNNER_NAMES],
        "local_runners": [*beam_options.StandardOptions.LOCAL_RUNNERS],
        "flags": {
            name: _described(action)
            for name, action in sorted(parser._option_string_actions.items())
        },
    }


def _described(action: argparse.Action) -> dict[str, Any]:
    """Returns the arguments of ``add_argument`` that read a flag as Beam does."""
    if action.nargs == 0:
        return {"dest": action.dest, "action": "store_true"}
    fields = {
        "dest": action.dest,
        "action": None if isinstance(action, argparse._StoreAction) else "append",
        "nargs": action.nargs,
        "choices": action.choices,
        "type": _TYPES.get(action.type, "json"),
    }
    return {name: value for name, value in fields.items() if value is not None}
