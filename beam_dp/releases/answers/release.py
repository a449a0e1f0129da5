"""Released answers to queries that were asked one at a time or together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from beam_dp.releases.release import Release, library_versions


@dataclass(frozen=True, eq=False, kw_only=True)
class AnswersRelease(Release):
    """The answers of one complete run, with the privacy guarantee of the run.

    Args: in addition to those of ``Release``,
        rows: the answers, with the field names of ``files.ANSWER_SCHEMA``.
        stated: the mechanism, the plan and the settings on the card, as JSON values. ``card`` adds
            the guarantee and the numbers of answered and refused queries.
    """

    KIND: ClassVar[str] = "answers"

    rows: Sequence[Mapping[str, Any]]
    stated: Mapping[str, Any]

    @cached_property
    def card(self) -> dict[str, Any]:
        """The content of the card, as JSON values."""
        return {
            **self.stated,
            "guarantee": self.guarantee.to_json(),
            "num_answers": sum(row["error"] is None for row in self.rows),
            "num_refused": sum(row["error"] is not None for row in self.rows),
            "versions": self.stated.get("versions", library_versions()),
        }

    @property
    def mechanism(self) -> str:
        """The name of the mechanism; "not stated" if the card does not name it."""
        return str(self.stated.get("mechanism", "not stated"))

    @property
    def plan(self) -> Mapping[str, Any]:
        """The public parameters of the plan; empty if the card states none."""
        held = self.stated.get("plan")
        return held if isinstance(held, Mapping) else {}

    @property
    def noise(self) -> Sequence[Mapping[str, Any]]:
        """The noise of each answer; empty if the answers have no noise of their own."""
        names = ("distribution", "scale", "grid")
        found = {name: self.plan[name] for name in names if name in self.plan}
        return [found] if found else []
