"""Pages of the notebooks, with the outputs and pictures of a run that the build itself makes."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Any

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "notebooks"
NAMES = [path.stem for path in sorted(FOLDER.glob("*.ipynb"))]
PICTURE = "image/svg+xml"
TITLE = re.compile(r'title\("(.+?)"\)')
STYLE = re.compile(r"\x1b\[[0-9;]*m")  # bold and colours of a terminal
KEPT = ("*.html", "*.py")


def notebook_pages() -> dict[str, str]:
    """Runs each notebook; returns its page, its pictures and the files that it made, by name."""
    # The environment that `make docs` fills; make passes on a VENV of its command line.
    python = ROOT / os.environ.get("VENV", ".venv") / "bin" / "python"
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        kept = pathlib.Path(temporary)
        runs = []
        for name in NAMES:
            (kept / name).mkdir()
            command = [python, FOLDER / "run.py", "--keep", kept, name]
            # A notebook works in a temporary folder of its own.
            environment = {**os.environ, "TMPDIR": str(kept / name)}
            runs.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE))
        errors = [run.communicate()[1].decode().strip() for run in runs]
        if any(run.returncode for run in runs):
            sys.exit("; ".join(filter(None, errors)))
        for name in NAMES:
            book = json.loads((kept / f"{name}.ipynb").read_text("utf-8"))
            made = {path.name: path for each in KEPT for path in (kept / name).glob(f"*/{each}")}
            found.update(_page(name, book["cells"], made))
    return found


def _page(name: str, cells: list[dict[str, Any]], made: dict[str, pathlib.Path]) -> dict[str, str]:
    """Returns the files of a notebook that ran: its page, with its pictures and what it made."""
    files = {file: path.read_text("utf-8") for file, path in made.items()}
    shown = [_printed(cell) for cell in cells]
    last = {file: i for i, text in enumerate(shown) for file in made if file in text}
    parts = []
    for place, (cell, text) in enumerate(zip(cells, shown, strict=True)):
        source = "".join(cell["source"])
        parts.append(f"```python\n{source}\n```" if cell["cell_type"] == "code" else source)
        if text:
            parts.append(f"``` {{ .text .output }}\n{text}\n```")
        for output in cell.get("outputs", []):
            if picture := output.get("data", {}).get(PICTURE):
                title = TITLE.search(source)
                assert title, f"{name}.ipynb, cell {place + 1}: a picture needs a title"
                file = f"{name}-{cell['id']}.svg"
                files[file] = "".join(picture)
                parts.append(f'<img class="plot" alt="{title[1]}" src="{file}">')
        parts += [_link(file, file) for file in sorted(made) if last.get(file) == place]
    parts.insert(1, _link(f"{name}.ipynb", "this notebook"))
    return {f"{name}.md": "\n\n".join(parts) + "\n", **files}


def _link(file: str, text: str) -> str:
    # Not a Markdown link: those lead to pages.
    if file.endswith(".html"):
        return f'<a href="{file}">Open {text}</a>'
    return f'<a href="{file}" download>Download {text}</a>'


def _printed(cell: dict[str, Any]) -> str:
    """Returns what a cell printed, and the text of its value."""
    texts = []
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        text = output.get("text", [] if PICTURE in data else data.get("text/plain", []))
        texts.append("".join(text))
    lines = STYLE.sub("", "".join(texts)).splitlines()
    return "\n".join(line.rstrip() for line in lines).strip("\n")
