"""The part of `beam-dp answer` for releases of answers, which can't answer further queries."""

from __future__ import annotations

import argparse
from typing import NoReturn

from beam_dp.errors import InputError
from beam_dp.flags.questions import refuse_others
from beam_dp.releases.answers.release import AnswersRelease


def answer_answers(_: AnswersRelease, options: argparse.Namespace) -> NoReturn:
    """Raises an error: a release of answers can't answer further queries."""
    refuse_others(options, ("interval", "quantile", "sparse"))
    condition = "contains answers and can't answer further queries: see beam-dp describe"
    raise InputError("release", options.directory, condition)
