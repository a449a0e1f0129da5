"""Pages of the site that are not in its own folder: they stay where a code host shows them.

Each keeps its path of the repository, so that links between them hold as they are written.
"""

from __future__ import annotations

import ast
import html
import itertools
import os
import pathlib
import re
from typing import Any

from mechanism_pages import mechanism_pages, shown_objects
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from notebook_pages import notebook_pages
from pymdownx.slugs import slugify

ROOT = pathlib.Path(__file__).parents[2]
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
# A cell of more characters is prose.
PROSE = 60
TOGETHER = re.compile(r"(?<=\d) ([±/]) (?=\d)")
CODE, FLAG = re.compile(r"<code>[^<]*"), re.compile(r"(?<![\w-])--\w{1,30}")
NAMED_BY_PATH = re.compile(r"(?<=\[)[\w/]+\.md(?=\]\(([\w./]+\.md)(?:#([\w-]+))?\))")
NOTEBOOK = re.compile(r"(?<=\w)\.ipynb(?=\))")  # at the end of a link
SLUG = slugify(case="lower")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Offers a choice of versions where `mike` builds one of several."""
    if "MIKE_DOCS_VERSION" in os.environ:
        config.extra["version"] = {"provider": "mike"}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds what the repository shows elsewhere, and the pages of the reference."""
    for pattern in SHOWN:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    for name, text in notebook_pages().items():
        files.append(File.generated(config, f"examples/notebooks/{name}", content=text))
    pages = {f"reference/{name}.md": text for name, text in reference().items()}
    for name, text in {**pages, **mechanism_pages()}.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Names pages and their parts by their headings where a link shows the path of a file."""
    folder = (ROOT / page.file.src_uri).parent

    def titled(found: re.Match[str]) -> str:
        headings = re.findall(r"^#+ (.+)$", (folder / found[1]).read_text("utf-8"), re.MULTILINE)
        named = {SLUG(heading, "-"): heading for heading in reversed(headings)}
        return named.get(found[2], headings[0])

    return NOTEBOOK.sub(".md", NAMED_BY_PATH.sub(titled, markdown))


def on_page_content(content: str, page: Page, **_: Any) -> str:
    """Gives cells of prose the names of their columns, for screens too narrow for a table.

    Figures stay in one line with their errors, and pairs of figures; flags, too, although browsers
    break lines after their dashes. The home page has a style.
    """
    content = CODE.sub(lambda code: FLAG.sub(r'<span class="flag">\g<0></span>', code[0]), content)
    content = re.sub(r"<table>.*?</table>", _labelled, content, flags=re.DOTALL)
    return f'<div class="home">{content}</div>' if page.is_homepage else content


def on_post_page(output: str, **_: Any) -> str:
    """Names the search dialog, which the theme does not, for screen readers."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')


def _labelled(found: re.Match[str]) -> str:
    table = TOGETHER.sub(r"&nbsp;\1&nbsp;", found[0])
    cells = re.findall(r"<td.*?</td>", table, re.DOTALL)
    if max((len(_text(cell)) for cell in cells), default=0) <= PROSE:
        return table
    labels = itertools.cycle(_text(head) for head in re.findall(r"<th\b.*?</th>", table, re.DOTALL))
    table = re.sub(r"<td\b", lambda _: f'<td data-label="{next(labels)}"', table)
    return table.replace("<table>", "<table data-prose>", 1)


def _text(element: str) -> str:
    plain = html.unescape(re.sub(r"<[^>]+>", "", element))
    return html.escape(plain.strip())


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
            f"::: {package}.{path.stem}\n    options:\n      show_root_full_path: true\n"
            for path in modules
        )
    pages["theorems"] += "".join(f"\n::: beam_dp.planning.{name}\n" for name in THEOREMS)
    return pages


def public_names() -> dict[str, list[str]]:
    """Returns the names that `import beam_dp` offers, by the room that they come from."""
    tree = ast.parse((ROOT / "beam_dp" / "__init__.py").read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    rooms: dict[str, list[str]] = {}
    for node in block.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [alias.name for alias in node.names]
            rooms.setdefault(node.module.split(".")[1], []).extend(names)
    return {room: sorted(names, key=str.lower) for room, names in sorted(rooms.items())}


def _overview(rooms: dict[str, list[str]]) -> str:
    rows = [
        f"| [{room}]({room}.md) | {', '.join(f'[`{name}`][beam_dp.{name}]' for name in names)} |"
        for room, names in rooms.items()
    ]
    return "\n".join(
        (
            "# What `import beam_dp` offers",
            "",
            "Made from the docstrings. Of other modules [beam_dp.planning.theorems](theorems.md)",
            "and [beam_dp.testing](testing.md) are public; programs and their flags:",
            "[flags](../docs/flags.md).",
            "",
            "| room | names |",
            "| --- | --- |",
            *rows,
            "",
        )
    )
