"""Every refusal of ``tests/refusals.jsonl``: one line that names the field, and nothing done.

A line of that file has a surface, what is wrong (``arguments``), the field that the message must
name, sometimes files that are written first, and of a command line sometimes what it may import
(``imports``: a line of ``FORBIDDEN``). What the messages say is in
``tests/refusals.txt``, which ``make generated`` writes: a reworded message is a change of that file
alone. ``surfaces*.py`` say what a valid use of each surface is.
"""

from __future__ import annotations

import collections
import contextlib
import io
import json
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest
from jobs import everything_under
from surfaces import SURFACES, Program
from versions import since

from beam_dp.errors import InputError

TESTS = pathlib.Path(__file__).resolve().parent.parent
ROWS = [json.loads(line) for line in (TESTS / "refusals.jsonl").read_text("utf-8").splitlines()]
MESSAGES = TESTS / "refusals.txt"


def message_of(row: dict[str, Any], folder: pathlib.Path) -> str:
    """Returns what the surface says, with the folder's name replaced."""
    surface = SURFACES[row["surface"]]
    if isinstance(surface, Program):
        return line_of(surface, row, folder).replace(str(folder), "FOLDER")
    namespace = {**surface, "folder": folder}
    write_files(row, folder)
    try:
        made = eval(row["arguments"], namespace)
    except InputError as error:
        message = str(error)
    else:
        raise AssertionError(f"accepted: {made!r}")
    assert "\n" not in message and len(message) < 1000, message
    return message.replace(str(folder), "FOLDER")


def line_of(program: Program, row: dict[str, Any], folder: pathlib.Path) -> str:
    argv = program.argv(folder, row["arguments"])
    write_files(row, folder)
    before, paid = everything_under(folder), paid_in(folder)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = program.main(argv)
    assert (code, out.getvalue()) == (2, "")
    assert re.fullmatch(r"error: [^\n]+\n", err.getvalue()), err.getvalue()
    assert everything_under(folder) == before, "something was written"
    assert paid_in(folder) == paid, "the ledger has changed"
    return err.getvalue().removeprefix("error: ").rstrip("\n")


def paid_in(folder: pathlib.Path) -> list[bytes]:
    """What the ledgers in a folder hold."""
    return [path.read_bytes() for path in sorted(folder.glob("*.sqlite"))]


def write_files(row: dict[str, Any], folder: pathlib.Path) -> None:
    for name, text in row.get("files", {}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def shown(row: dict[str, Any], message: str) -> str:
    given = row["arguments"]
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    if "files" in row:
        text += f" with {json.dumps(row['files'], ensure_ascii=False)}"
    return f"{row['surface']}: {text}\n    {message}\n"


STREAMS = "arrivals", "release-windows"
SURFACE_NAMES = [
    pytest.param(name, marks=since("apache-beam", "2.76") if name in STREAMS else ())
    for name in sorted({row["surface"] for row in ROWS})
]


@pytest.mark.parametrize("name", SURFACE_NAMES)
def test_refusals_name_the_field_and_do_nothing(name, tmp_path):
    recorded = MESSAGES.read_text("utf-8")
    faults = []
    for number, row in enumerate(row for row in ROWS if row["surface"] == name):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            message = message_of(row, folder)
        except AssertionError as error:
            faults.append(f"{row}: {error}")
            continue
        if row["names"] not in message:
            faults.append(f"{row}: must name {row['names']}: {message}")
        elif shown(row, message) not in recorded:
            faults.append(f"{row}: another message, see `make generated`: {message}")
    assert not faults, "\n".join(faults)


# What a refused command line must not import: without a field ``imports``, nothing that is heavy;
# "plans" are for what follows from a plan, a domain or a release; "beam" for what only Beam knows.
FORBIDDEN = {
    None: ("numpy", "pyarrow", "apache_beam", "beam_dp.domain", "beam_dp.mechanisms"),
    "plans": ("apache_beam",),
    "beam": (),
}
RUN_ALL = """
import contextlib, io, json, sys
from beam_dp.cli.main import main
said = []
for argv, forbidden in json.load(sys.stdin):
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        code = main(argv)
    said.append([code, text.getvalue(), [name for name in forbidden if name in sys.modules]])
    if said[-1][2]:
        break
print(json.dumps(said))
"""


@pytest.mark.job
@pytest.mark.parametrize("imports", [None, "plans"])
def test_refused_command_lines_import_little(imports, tmp_path):
    """One process for all that may import the same: it ends at the first that imports more."""
    asked, rows = [], []
    for number, row in enumerate(ROWS):
        program = SURFACES[row["surface"]]
        if isinstance(program, Program) and row.get("imports") == imports:
            folder = tmp_path / str(number)
            folder.mkdir()
            argv = program.argv(folder, row["arguments"])
            write_files(row, folder)
            asked.append((program.words(argv), FORBIDDEN[imports]))
            rows.append((row, str(folder)))
    python = [sys.executable, "-c", RUN_ALL]
    done = subprocess.run(
        python, input=json.dumps(asked), capture_output=True, text=True, check=True
    )
    for (row, folder), (code, text, loaded) in zip(rows, json.loads(done.stdout), strict=False):
        assert loaded == [], row
        # The check of a flag quotes forms that it names less often than that of its reader.
        names, said = row["names"].replace("'", ""), text.replace(folder, "FOLDER")
        assert code == 2 and names in said.replace("'", ""), (row, text)


def test_no_refusal_is_listed_twice():
    listed = collections.Counter(
        json.dumps({**row, "imports": None}, sort_keys=True) for row in ROWS
    )
    assert [row for row, number in listed.items() if number > 1] == []


def test_every_recorded_message_belongs_to_a_refusal():
    """What is recorded is what is refused, in the order of the surfaces."""
    heads = [shown(row, "").partition("\n    ")[0] for row in in_order()]
    recorded = [
        line for line in MESSAGES.read_text("utf-8").splitlines() if not line.startswith("    ")
    ]
    assert recorded == [line for head in heads for line in head.splitlines()]


def in_order() -> list[dict[str, Any]]:
    return sorted(ROWS, key=lambda row: row["surface"])


def write_messages() -> None:
    """Writes ``refusals.txt``: called by ``make generated``."""
    import tempfile

    texts = []
    for row in in_order():
        with tempfile.TemporaryDirectory() as folder:
            texts.append(shown(row, message_of(row, pathlib.Path(folder).resolve())))
    MESSAGES.write_text("".join(texts), "utf-8")


if __name__ == "__main__":
    write_messages()
