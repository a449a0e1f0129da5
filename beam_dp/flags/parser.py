"""The argument parser of the `beam-dp` command: a refusal is one line."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from beam_dp.errors import shown


class RefusedError(Exception):
    """One line for the user."""


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises where argparse would print its usage and exit."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        # Also 1e-9 after a minus is a number, which its own check refuses, and no flag.
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def error(self, message: str) -> NoReturn:
        """Raises what argparse would print."""
        raise RefusedError(message.removeprefix("argument "))


class Once(argparse.Action):
    """Stores a value, and refuses a second one: which of two budgets is meant is no guess."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Stores the value."""
        earlier = getattr(namespace, self.dest)
        if earlier is not None:
            raise RefusedError(
                f"--{self.dest}: {shown(values)} is refused; must be given once"
                f" (before: {shown(earlier)})"
            )
        setattr(namespace, self.dest, values)


def nearest(name: str, known: Sequence[str]) -> str:
    """Returns the known name that looks most like the given one."""
    return difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
