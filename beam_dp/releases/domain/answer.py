"""The part of `beam-dp answer` for released domains, which hold no counts to be asked for."""

from __future__ import annotations

import argparse
from typing import NoReturn

from beam_dp.errors import InputError
from beam_dp.flags.questions import refuse_others
from beam_dp.releases.domain.release import DomainRelease


def answer_domain(_: DomainRelease, options: argparse.Namespace) -> NoReturn:
    """Raises an error: a domain only lists what was found."""
    refuse_others(options, ("interval", "quantile", "sparse"))
    condition = "is a domain, which answers no queries: see beam-dp describe"
    raise InputError("release", options.directory, condition)
