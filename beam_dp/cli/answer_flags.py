"""The flags of `beam-dp answer`; no heavy imports."""

from __future__ import annotations

import argparse
from typing import Any

from beam_dp.flags.flag import FlagError, Once
from beam_dp.flags.questions import is_given

# What is asked, of which a command line has one; and where, which goes with questions.
_WHAT = ("marginal", "queries", "sparse", "interval", "quantile", "count", "mean", "sum", "share")
# Those that take several columns, separated by commas.
COLUMN_FLAGS = ("group_by", "marginal")
_OF_RECORDS = ("count", "mean", "sum", "share", "quantile")


def add_answer(commands: Any) -> None:
    """Adds the command's arguments to those of `beam-dp`."""
    answer = commands.add_parser("answer", help="answer queries")
    answer.add_argument("directory", metavar="DIR", help="directory that holds a release")
    answer.add_argument("--json", action="store_true", help="JSON for machines")
    answer.add_argument(
        "--marginal", action="append", metavar="a,b", help="one marginal; may be repeated"
    )
    answer.add_argument(
        "--queries",
        metavar="FILE",
        action=Once,
        help='JSON lines: all of them {"marginal": ["a", "b"]}, or any linear queries, such as'
        ' {"interval": {"attribute": "a", "low": 1, "high": 3}}',
    )
    answer.add_argument(
        "--sparse",
        metavar="FILE",
        action=Once,
        help="one key a line, after a tab its value from 0 to 1, or 1",
    )
    answer.add_argument(
        "--interval",
        action="append",
        nargs=2,
        metavar=("LOW", "HIGH"),
        help="interval counts: integers, both included, or edges of bins; may be repeated",
    )
    answer.add_argument(
        "--quantile",
        action="append",
        metavar="SHARE",
        help="where this share of the records is reached: of interval counts, or of the column --of"
        " synthetic records; may be repeated",
    )
    _add_questions(answer)
    answer.add_argument(
        "--windows",
        metavar="A:B",
        action=Once,
        help="of the windows of a stream: which ones together, such as 10:34 or -24:, or one alone",
    )
    answer.add_argument(
        "--limit",
        type=int,
        default=50,
        metavar="N",
        action=Once,
        help="rows shown of a table (default: 50)",
    )


def _add_questions(answer: argparse.ArgumentParser) -> None:
    words = {
        "where": ("CONDITION", "which records, such as \"sex == 'F' and age < 40\""),
        "group_by": ("a,b", "an answer for each combination of these columns"),
        "mean": ("COLUMN", "the mean of an integer or numeric column"),
        "sum": ("COLUMN", "its sum"),
        "share": ("CONDITION", "the share of records for which a condition on one column holds"),
        "of": ("COLUMN", "of --quantile: of which column"),
    }
    answer.add_argument(
        "--count", action="store_true", help="the number of records; unless another is asked for"
    )
    for name, (form, text) in words.items():
        answer.add_argument(
            f"--{name}", metavar=form, action=Once, help=f"synthetic records: {text}"
        )


def check_answer(options: argparse.Namespace) -> None:
    """Refuses a command line that asks nothing, or two things.

    Raises:
        FlagError: naming the flags.
    """
    asked = [name for name in _WHAT if is_given(options, name)]
    limits = [name for name in ("where", "group_by") if is_given(options, name)]
    if len(asked) > 1:
        raise FlagError(f"--{asked[1]}: must not be given with --{asked[0]}")
    if not asked and not limits:
        named = ", ".join(f"--{name}" for name in _WHAT)
        raise FlagError(f"nothing is asked; must be given one of {named}, --where or --group_by")
    if asked and limits and asked[0] not in _OF_RECORDS:
        raise FlagError(f"--{limits[0]}: must not be given with --{asked[0]}")
    if options.of is not None and asked != ["quantile"]:
        raise FlagError("--of: must be given with --quantile")
