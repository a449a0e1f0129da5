"""The flags of `beam-dp answer` that ask for counts, means and such."""

from __future__ import annotations

import argparse

QUESTIONS = ("where", "group_by", "count", "mean", "sum", "share", "of")


def asks_a_question(options: argparse.Namespace) -> bool:
    """Returns whether synthetic records are asked for counts, means and such."""
    return any(is_given(options, name) for name in QUESTIONS)


def is_given(options: argparse.Namespace, name: str) -> bool:
    """Whether a flag stands on the command line, be it with an empty text."""
    return getattr(options, name) not in (None, False)
