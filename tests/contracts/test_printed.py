"""What commands print, word for word: each line of ``tests/printed.jsonl`` is a command.

With a ``surface`` of ``surfaces_programs``, the arguments are flags in addition to its own. What
goes to the standard error has a mark.

``first`` is what is done before it, in names of ``surfaces_releases`` and ``surfaces_privacy``;
``write`` writes a release to the folder "release", or another one, where the command is typed.
``shows`` names a file that the command writes. What is printed is in ``tests/printed.txt``, which
``make generated`` writes: read the difference after a change of words.
"""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import re
import shlex
import tempfile
from typing import Any

import pytest
from kind_examples import unpack
from surfaces import SURFACES, Program
from written_draws import draw_of

from beam_dp.cli.main import main

TESTS = pathlib.Path(__file__).resolve().parent.parent
ROWS = [json.loads(line) for line in (TESTS / "printed.jsonl").read_text("utf-8").splitlines()]
PRINTED = TESTS / "printed.txt"
NAMES = {**SURFACES["ledger"], **SURFACES["read_release"]}  # type: ignore[dict-item]
# Versions of what made a release, and times.
CHANGING = re.compile(
    r"(?<=^made with)(?:.*\n(?=\S))*.*|\d{4}-\d\d-\d\d[ T]\d\d:\d\d:[\d.]+(?= UTC|\+00:00)", re.M
)
DIGITS = re.compile(r"\d+\.\d{6,}")


def printed(row: dict[str, Any], folder: pathlib.Path) -> str:
    """Returns the command and what it prints."""

    def write(release: Any, name: str = "release") -> None:
        unpack(draw_of(release), folder / name)

    if "first" in row:
        eval(row["first"], {**NAMES, "folder": folder, "write": write})
    given = row["arguments"]
    surface = SURFACES[row["surface"]] if "surface" in row else Program(main)
    assert isinstance(surface, Program)
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = surface.main(surface.argv(pathlib.Path(), given))
    assert code == row.get("code", 0), row
    if "shows" in row:
        out.write((folder / row["shows"]).read_text("utf-8"))
    text = CHANGING.sub("...", out.getvalue())
    text = DIGITS.sub(lambda number: f"{float(number.group()):.6g}", text)
    lines = [f"    {line}".rstrip() for line in text.split("\n")]
    lines += [f"  ! {line}" for line in err.getvalue().splitlines()]
    first = f"after {row['first']}\n" if "first" in row else ""
    if isinstance(given, dict):
        flags = given.items()
        given = [f"no {name}" if each is None else f"--{name}={each}" for name, each in flags]
    return first + "\n".join([f"$ {row.get('surface', 'beam-dp')} {shlex.join(given)}", *lines])


def whole() -> str:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setenv("COLUMNS", "80")
        places = [pathlib.Path(folder, str(number)) for number in range(len(ROWS))]
        for place in places:
            place.mkdir()
        return "\n".join(map(printed, ROWS, places))


def test_commands_print_what_is_recorded():
    assert whole() == PRINTED.read_text("utf-8"), "see `make generated`"


if __name__ == "__main__":
    PRINTED.write_text(whole(), "utf-8")
