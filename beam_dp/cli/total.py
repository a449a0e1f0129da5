"""A number of records, for people."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from beam_dp.cli.describe import plain_table
from beam_dp.errors import InputError
from beam_dp.releases.total import TotalRelease

if TYPE_CHECKING:
    from rich.console import RenderableType


def describe_total(release: TotalRelease) -> RenderableType:
    """Returns the number and its error, for ``rich`` to print."""
    number, error = release.noisy_number()
    rows = [("records", f"{number:,.0f}"), ("standard error", f"{error:,.1f}")]
    return plain_table(("release", ""), [*rows, ("draw", release.draw_id)])


def answer_total(options: argparse.Namespace, _: TotalRelease) -> None:
    """Refuses every question.

    Raises:
        InputError: always.
    """
    condition = "holds one number: see beam-dp describe"
    raise InputError("release", options.directory, condition)
