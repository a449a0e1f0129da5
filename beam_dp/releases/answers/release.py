"""Answers to queries that were asked one at a time, or all at once: public."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from beam_dp.releases.release import Release


@dataclass(frozen=True, eq=False, kw_only=True)
class AnswersRelease(Release):
    """Answers of one run, complete, and what was promised with them.

    Args: as of ``Release``, and
        rows: the answers, by the names of ``files.answers.ANSWER_SCHEMA``.
        card: what the card says beside its payload, as JSON values: mechanism, guarantee, plan.
    """

    KIND: ClassVar[str] = "answers"

    rows: Sequence[Mapping[str, Any]]
    card: Mapping[str, Any]
