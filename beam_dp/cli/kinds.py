"""The table of how `beam-dp describe` and `beam-dp answer` treat each kind of release."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from beam_dp.errors import InputError
from beam_dp.flags.flag import FlagError
from beam_dp.flags.questions import QUESTIONS
from beam_dp.releases.answers.describe import describe_answers
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.intervals.answer import answer_intervals
from beam_dp.releases.intervals.describe import describe_intervals
from beam_dp.releases.intervals.release import IntervalRelease
from beam_dp.releases.release import Release
from beam_dp.releases.sketches.answer import answer_sparse
from beam_dp.releases.sketches.describe import describe_sparse
from beam_dp.releases.sketches.release import SparseRelease
from beam_dp.releases.synthetic_database.answer import answer_synthetic
from beam_dp.releases.synthetic_database.describe import describe
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.windows.answer import answer_horizon
from beam_dp.releases.windows.describe import describe_window
from beam_dp.releases.windows.describe_horizon import describe_horizon
from beam_dp.releases.windows.horizon import HorizonRelease
from beam_dp.releases.windows.window import WindowTables

if TYPE_CHECKING:
    from rich.console import RenderableType

# By class: what is shown of a release, what answers a command line, and the flags of `answer`
# that ask this kind, and not every one.
Shown = tuple[
    Callable[[Any], "RenderableType"], Callable[[argparse.Namespace, Any], None], tuple[str, ...]
]


def _refuse(options: argparse.Namespace, _: AnswersRelease) -> None:
    condition = "holds answers and can answer no further queries: see beam-dp describe"
    raise InputError("release", options.directory, condition)


SHOWN: dict[type[Release | HorizonRelease], Shown] = {
    SyntheticDatabase: (describe, answer_synthetic, ("quantile", *QUESTIONS)),
    IntervalRelease: (describe_intervals, answer_intervals, ("interval", "quantile")),
    SparseRelease: (describe_sparse, answer_sparse, ("sparse",)),
    WindowTables: (describe_window, answer_synthetic, ()),
    AnswersRelease: (describe_answers, _refuse, ("interval", "quantile", "sparse")),
    HorizonRelease: (describe_horizon, answer_horizon, ("windows",)),
}
_ASKED_OF = {
    **dict.fromkeys(QUESTIONS, "synthetic records"),
    "sparse": "a release for sparse queries",
    "interval": "interval counts; for synthetic records use --queries",
    "quantile": "interval counts and synthetic records",
    "windows": "the windows of a stream, by the directory that holds all of them",
}


def described(release: Release | HorizonRelease) -> RenderableType:
    """Returns what a release of any kind promises, for ``rich`` to print."""
    return SHOWN[type(release)][0](release)


def answer(options: argparse.Namespace, release: Release | HorizonRelease) -> None:
    """Prints what a command line asks of a release of any kind.

    Raises:
        FlagError: if it asks what this kind does not answer.
        InputError: if what it asks is refused.
    """
    _, print_answers, own = SHOWN[type(release)]
    for name, kind in _ASKED_OF.items():
        if name not in own and getattr(options, name) not in (None, False):
            raise FlagError(f"--{name} applies only to {kind}")
    print_answers(options, release)
