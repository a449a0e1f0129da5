"""The blocks of a page's code, fenced or indented, and what kind of code each is."""

import ast
import dataclasses
import pathlib
import re
import textwrap

from markdown_it import MarkdownIt

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/*.md", "benchmarks/results/*.md")
    for path in sorted(ROOT.glob(pattern))
]
FENCES = {"json": "json", "python": "python", "sh": "shell", "yaml": "yaml"}
PROGRAMS = ("beam-dp", "docker", "echo", "export", "gcloud", "make", "pip", "python", "IMAGE")
FILE = re.compile(r"`([\w-]+\.(?:jsonl?|yaml))`")


@dataclasses.dataclass(frozen=True)
class Block:
    """A block of code as it stands on a page.

    Args:
        page: where it stands, as a path from the root.
        line: of the page, from 1.
        kind: ``python``, ``shell``, ``json``, ``yaml``, or ``text``, which is all else.
        text: what it holds.
        before: the paragraph, or other text, that stands before it.
    """

    page: str
    line: int
    kind: str
    text: str
    before: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str:
        """The file that the text before a block says it is, if any; empty else."""
        named = FILE.findall(self.before) if self.kind in ("json", "yaml") else []
        return named[-1] if named else ""

    def commands(self) -> list[tuple[str, str]]:
        """Returns the command lines of a shell, each with the output that is shown of it."""
        text = self.text.replace("\\\n", " ")
        if not text.startswith("$ "):
            return [(line, "") for line in text.splitlines() if line.strip()]
        shown = [each.partition("\n") for each in re.split(r"^\$ ", text, flags=re.M)[1:]]
        return [(command, output) for command, _, output in shown]


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _kind(info: str, text: str) -> str:
    if info:
        return FENCES[info]
    if re.match(rf"(?:\$ )?(?:{'|'.join(PROGRAMS)})\b[^:]", text):
        return "shell"
    if text.startswith('{"'):
        return "json"
    if re.match(r"\w+:\n  ", text):
        return "yaml"
    return "python" if _is_python(text) else "text"


def blocks_of(page: str) -> list[Block]:
    """Returns the blocks of a page in their order."""
    found, before = [], ""
    for token in MarkdownIt("commonmark").parse((ROOT / page).read_text("utf-8")):
        if token.type == "inline":
            before = token.content
        elif token.type in ("fence", "code_block"):
            assert token.map is not None
            text = textwrap.dedent(token.content)
            kind = _kind(token.info, text)
            found.append(Block(page, token.map[0] + 1, kind, text, before))
    return found
