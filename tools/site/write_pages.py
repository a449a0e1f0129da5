"""Writes the site's pages into `build/pages`: plain Markdown, which any generator can show.

Each keeps its path of the repository, so that links between them hold as they are written.
"""

from __future__ import annotations

import pathlib
import re
import shutil

from docstrings import places_of_objects, public_names, with_docstrings
from mechanism_pages import mechanism_pages, shown_objects
from notebook_pages import notebook_pages

ROOT = pathlib.Path(__file__).parents[2]
PAGES = ROOT / "build" / "pages"
SHOWN = (
    "*.md",
    "CITATION.cff",
    "docs/*.md",
    "docs/*.svg",
    "benchmarks/judges/synthesizers/adapter.py",
    "benchmarks/results/*.md",
    "examples/*.py",
    "examples/java/src/main/java/*.java",
    "examples/notebooks/*.ipynb",
    "examples/recipes/*.*",
    "examples/yaml/*.yaml",
)
# Packages that people import by their own names; the others are public through `beam_dp`.
PACKAGES = ("beam_dp.planning.theorems", "beam_dp.testing")
# The theorems next to the options that state them.
THEOREMS = ("answers.online_theorem", "intervals.intervals_theorem", "sketches.projection_theorem")
NAMED_BY_PATH = re.compile(r"(?<=\[)[\w/]+\.md(?=\]\(([\w./]+\.md)(?:#([\w-]+))?\))")
NOTEBOOK = re.compile(r"(?<=\w)\.ipynb(?=\))")  # at the end of a link
# Figures stay in one line with their errors, and pairs of figures.
TOGETHER = re.compile(r"(?<=\d) ([±/]) (?=\d)")

OVERVIEW = """\
# What `import beam_dp` offers

Made from the docstrings. Of other modules [beam_dp.planning.theorems](theorems.md) and
[beam_dp.testing](testing.md) are public; programs and their flags: [flags](../docs/flags.md).

| room | names |
| --- | --- |
"""


def main() -> None:
    """Writes all pages, and the files that they show or offer, into an empty folder."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(pathlib.Path(__file__).with_name("pages"), PAGES)
    texts = {f"examples/notebooks/{name}": text for name, text in notebook_pages().items()}
    texts.update({**reference(), **mechanism_pages()})
    for pattern in SHOWN:
        for path in ROOT.glob(pattern):
            texts[path.relative_to(ROOT).as_posix()] = path.read_text("utf-8")
    places = places_of_objects(texts)
    for name, text in texts.items():
        if name.endswith(".md"):
            text = with_docstrings(page(name, text), name, places)
        (PAGES / name).parent.mkdir(parents=True, exist_ok=True)
        (PAGES / name).write_text(text, "utf-8")


def page(name: str, text: str) -> str:
    """Names pages and their parts by their headings where a link shows the path of a file."""
    folder = (ROOT / name).parent

    def titled(found: re.Match[str]) -> str:
        headings = re.findall(r"^#+ (.+)$", (folder / found[1]).read_text("utf-8"), re.MULTILINE)
        named = {anchor(heading): heading for heading in reversed(headings)}
        return named.get(found[2], headings[0])

    text = NOTEBOOK.sub(".md", NAMED_BY_PATH.sub(titled, text))
    text = re.sub(r"^\|.*", lambda row: TOGETHER.sub(" \\1 ", row[0]), text, flags=re.M)
    return f'<div class="home" markdown>\n\n{text}\n</div>\n' if name == "README.md" else text


def anchor(heading: str) -> str:
    """Returns the name of a heading in links, as a code host makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def reference() -> dict[str, str]:
    """Returns the text of a page for each room that has public names."""
    rooms = public_names()
    pages = {"index": _overview(rooms)}
    for room, names in rooms.items():
        here = [name for name in names if name not in shown_objects()]
        pages[room] = f"# {room}\n\n" + "\n".join(f"::: beam_dp.{name}\n" for name in here)
    for package in PACKAGES:
        modules = sorted((ROOT / package.replace(".", "/")).glob("[!_]*.py"))
        pages[package.rpartition(".")[2]] = f"# {package}\n\n" + "\n".join(
            f"::: {package}.{path.stem}\n" for path in modules
        )
    pages["theorems"] += "".join(f"\n::: beam_dp.planning.{name}\n" for name in THEOREMS)
    return {f"reference/{name}.md": text for name, text in pages.items()}


def _overview(rooms: dict[str, list[str]]) -> str:
    rows = [
        f"| [{room}]({room}.md) | {', '.join(f'[`{name}`][beam_dp.{name}]' for name in names)} |"
        for room, names in rooms.items()
    ]
    return OVERVIEW + "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
