"""Docstrings as Markdown: what Google's style says, and what this project's style adds to it."""

from __future__ import annotations

import functools
import os
import pathlib
import re
from typing import Any

import griffe
from griffe2md import render_object_docs

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLE = re.compile(r"^Example:(.*)$", re.MULTILINE)
LEADS = re.compile(r"^(Accuracy|Cost|Edge cases|Privacy|Reference|Source): ", re.MULTILINE)
TOGETHER = re.compile(r"^( +)(\w+(?:, \w+)+): (.+)$", re.MULTILINE)
OBJECT = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
LINK = re.compile(r"\[([^\[\]]+)\]\[(beam_dp[\w.]+)\]")
TYPE = re.compile(r"\[([^\[\]]+)\]\(#([\w.]+)\)")
OPTIONS = {
    "filters": ["!^_", "!^expand$"],
    "line_length": 80,
    "members_order": "source",
    "show_bases": False,
    "show_if_no_docstring": False,
    "show_object_full_path": False,
    "show_root_full_path": False,
    "show_root_members_full_path": False,
    "show_signature_annotations": True,
    "summary": False,
}


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


@functools.cache
def package() -> griffe.Module:
    """Returns the package as it is read from its files: nothing of it is imported."""
    style = griffe.load_extensions(HouseStyle)
    loaded = griffe.load(
        "beam_dp",
        search_paths=[ROOT],
        extensions=style,
        docstring_parser="google",
        allow_inspection=False,
    )
    assert isinstance(loaded, griffe.Module)
    return loaded


def public_names() -> dict[str, list[str]]:
    """Returns the names that `import beam_dp` offers, by the room that they come from."""
    rooms: dict[str, list[str]] = {}
    for name, member in sorted(package().members.items(), key=lambda item: item[0].lower()):
        if member.is_alias and member.target_path.startswith("beam_dp."):
            rooms.setdefault(member.target_path.split(".")[1], []).append(name)
    del rooms["installed"]  # what loads them
    return dict(sorted(rooms.items()))


def with_docstrings(text: str, page: str, places: dict[str, str]) -> str:
    """Replaces names of objects by their documentation, and by links to it.

    Args:
        text: of a page, with lines such as ``::: beam_dp.MWEM``.
        page: its path.
        places: the page of each object that has one.
    """
    # Types are named where they are defined.
    named = {package()[name.partition(".")[2]].canonical_path: name for name in places}

    def described(found: re.Match[str]) -> str:
        shown = render_object_docs(package()[found[1].partition(".")[2]], OPTIONS)
        return f'<a id="{found[1]}"></a>\n\n{TYPE.sub(linked, shown)}'

    def linked(found: re.Match[str]) -> str:
        name = named.get(found[2], found[2])
        if name not in places:
            return found[1]
        place = os.path.relpath(places[name], pathlib.PurePosixPath(page).parent)
        return f"[{found[1]}]({place}#{name})"

    return LINK.sub(linked, OBJECT.sub(described, text))


def places_of_objects(texts: dict[str, str]) -> dict[str, str]:
    """Returns the page of each object that one shows."""
    return {name: page for page, text in texts.items() for name in OBJECT.findall(text)}
