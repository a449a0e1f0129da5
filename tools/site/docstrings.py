"""Docstrings as the reference shows them: what the parser of Google's style does not know."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^Example:(.*)$", re.MULTILINE)
LEADS = re.compile(r"^(Accuracy|Cost|Edge cases|Privacy|Reference|Source): ", re.MULTILINE)
TOGETHER = re.compile(r"^( +)(\w+(?:, \w+)+): (.+)$", re.MULTILINE)


class HouseStyle(griffe.Extension):
    """Makes examples code, names in front of paragraphs bold, and an entry of each parameter."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrites the docstring before it is parsed."""
        if obj.docstring:
            text = EXAMPLE.sub(r"Examples: Example:\1", obj.docstring.value)
            text = TOGETHER.sub(_apart, text)
            obj.docstring.value = LEADS.sub(r"**\1:** ", text)


def _apart(found: re.Match[str]) -> str:
    indent, names, text = found.groups()
    return "\n".join(f"{indent}{name}: {text}" for name in names.split(", "))
