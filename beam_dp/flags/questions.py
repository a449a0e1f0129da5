"""The flags of `beam-dp answer`, without heavy imports."""

from __future__ import annotations

import argparse
from collections.abc import Collection

from beam_dp.flags.flag import (
    DIRECTORY,
    JSON,
    Flag,
    FlagError,
    check_texts,
    integer,
    integer_flag,
    refused,
)

# A command line has at most one of these flags; some allow --where and --group_by.
# Flags for questions about columns of synthetic records: what they answer, and their value.
OF_COLUMNS = {
    "mean": ("the mean of an integer or numeric column", "COLUMN"),
    "sum": ("the sum of an integer or numeric column", "COLUMN"),
    "median": ("the median of an integer or numeric column", "COLUMN"),
    "variance": ("the variance of an integer or numeric column", "COLUMN"),
    "min": ("the least value of a column that is certain, despite noise, to be reached", "COLUMN"),
    "max": ("the largest value of a column that is certain to be reached", "COLUMN"),
    "histogram": ("the number of records with each value, or in each bin, of a column", "COLUMN"),
    "top": ("the ten most frequent values of a column", "COLUMN"),
    "share": ("the share of records that satisfy this condition on one column", "CONDITION"),
    "correlation": ("the correlation of two columns", "a,b"),
    "regression": ("the least squares fit of a column to others: 'wage ~ age + hours'", "FORMULA"),
}
_OF_RECORDS = ("count", "quantile", *OF_COLUMNS)
_WHAT = ("marginal", "queries", "sparse", "interval", *_OF_RECORDS)
QUESTIONS = ("where", "group_by", "count", "of", *OF_COLUMNS)
# Flags that apply only to some kinds of releases, with the kinds.
_ASKED_OF = {
    **dict.fromkeys(QUESTIONS, "synthetic records"),
    "sparse": "a release for sparse queries",
    "interval": "interval counts; for synthetic records use --queries",
    "quantile": "interval counts and synthetic records",
    "windows": "the windows of a stream, in the directory that contains all of them",
}
LIMIT = integer_flag("limit", "the number of rows to show (default: 50)", "N", default="50")
MARGINAL = Flag(
    "marginal",
    "the counts of all combinations of these columns; may be repeated",
    "a,b",
    repeats=True,
)
WHERE = Flag(
    "where",
    "synthetic records: only records that satisfy this condition, such as \"sex == 'F' and"
    ' age < 40"',
    "CONDITION",
)
FLAGS = (
    DIRECTORY,
    JSON,
    MARGINAL,
    Flag(
        "queries",
        'a file of JSON lines: only marginals, {"marginal": ["a", "b"]}, or any linear'
        ' queries, such as {"interval": {"attribute": "a", "low": 1, "high": 3}}',
        "FILE",
    ),
    Flag(
        "sparse",
        "a file with one key per line, optionally followed by a tab and a value from 0 to 1"
        " (default: 1)",
        "FILE",
    ),
    Flag(
        "interval",
        "interval counts: the count from LOW to HIGH, both included, or between two edges of"
        " bins; may be repeated",
        "LOW HIGH",
        repeats=True,
    ),
    Flag(
        "quantile",
        "the quantile at this share of the records, such as 0.9; in synthetic records, of the"
        " column --of; may be repeated",
        "SHARE",
        repeats=True,
    ),
    Flag("count", "the number of records (the default question)", is_switch=True),
    WHERE,
    Flag(
        "group_by",
        "synthetic records: one answer for each combination of values of these columns",
        "a,b",
    ),
    *(
        Flag(name, f"synthetic records: {answer}", form)
        for name, (answer, form) in OF_COLUMNS.items()
    ),
    Flag("of", "synthetic records: the column for --quantile", "COLUMN"),
    Flag(
        "windows",
        "windows of a stream: the sum of these windows, such as 10:34 or -24:, or a single window",
        "A:B",
    ),
    LIMIT,
)


def check_answer(options: argparse.Namespace) -> None:
    """Refuses a command line without a question or with two questions; parses ``limit``."""
    read_limit(options)
    asked = [name for name in _WHAT if _is_given(options, name)]
    limits = [name for name in ("where", "group_by") if _is_given(options, name)]
    if len(asked) > 1:
        raise FlagError(f"--{asked[1]} cannot be combined with --{asked[0]}")
    if not asked and not limits:
        named = ", ".join(f"--{name}" for name in _WHAT)
        raise FlagError(f"No question given. Use --where, --group_by or one of {named}")
    if asked and limits and asked[0] not in _OF_RECORDS:
        raise FlagError(f"--{limits[0]} cannot be combined with --{asked[0]}")
    if options.of is not None and asked != ["quantile"]:
        raise FlagError("--of needs --quantile")


def read_limit(options: argparse.Namespace) -> None:
    """Reads ``limit`` as a number >= 1."""
    check_texts([LIMIT], vars(options))
    options.limit = integer("limit", options.limit)
    if options.limit < 1:
        raise refused("limit", options.limit, "must be >= 1")


def refuse_others(options: argparse.Namespace, answered: Collection[str]) -> None:
    """Refuses flags of questions that a release does not answer."""
    for name, kind in _ASKED_OF.items():
        if name not in answered and _is_given(options, name):
            raise FlagError(f"--{name} applies only to {kind}")


def asks_a_question(options: argparse.Namespace) -> bool:
    """Returns whether a question about synthetic records is given, such as a mean."""
    return any(_is_given(options, name) for name in QUESTIONS)


def _is_given(options: argparse.Namespace, name: str) -> bool:
    """Returns whether a flag is on the command line, even with an empty value."""
    return getattr(options, name) is not None
