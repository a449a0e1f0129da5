"""The flags of `beam-dp answer` that ask for counts, means and such."""

from __future__ import annotations

import argparse
from collections.abc import Collection

from beam_dp.flags.flag import FlagError

QUESTIONS = ("where", "group_by", "count", "mean", "sum", "share", "of")


def asks_a_question(options: argparse.Namespace) -> bool:
    """Returns whether synthetic records are asked for counts, means and such."""
    return any(is_given(options, name) for name in QUESTIONS)


def is_given(options: argparse.Namespace, name: str) -> bool:
    """Whether a flag stands on the command line, be it with an empty text."""
    return getattr(options, name) not in (None, False)


# Flags that ask some kinds of releases only, and which.
_ASKED_OF = {
    **dict.fromkeys(QUESTIONS, "synthetic records"),
    "sparse": "a release for sparse queries",
    "interval": "interval counts; for synthetic records use --queries",
    "quantile": "interval counts and synthetic records",
    "windows": "the windows of a stream, by the directory that holds all of them",
}


def refuse_others(options: argparse.Namespace, answered: Collection[str]) -> None:
    """Refuses flags that ask what a release does not answer.

    Args:
        options: of `beam-dp answer`.
        answered: those of ``_ASKED_OF`` that the release answers.

    Raises:
        FlagError: naming the first such flag, and which releases answer it.
    """
    for name, kind in _ASKED_OF.items():
        if name not in answered and is_given(options, name):
            raise FlagError(f"--{name} applies only to {kind}")
