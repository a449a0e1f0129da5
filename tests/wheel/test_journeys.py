"""The journeys of an analyst, an engineer and an officer, with nothing but the wheel."""

from __future__ import annotations

import pathlib

import pytest
from documents.blocks import blocks_of
from documents.outputs import missing
from newcomers import Home

pytestmark = pytest.mark.wheel
(PAGE,) = blocks_of("docs/journeys.md")


def written(home: Home) -> set[pathlib.Path]:
    """Every file but those of the environment, which Python compiles as it goes."""
    environment = home.folder / "environment"
    return {path for path in home.folder.rglob("*") if not path.is_relative_to(environment)}


@pytest.mark.parametrize(("command", "shown"), PAGE.commands())
def test_journey_matches_its_page_and_writes_only_into_its_folder(home, command, shown):
    script = command.removeprefix("python ")
    copied = home.examples() / script
    output = home.folder / "elsewhere" / "journeys"
    before = written(home)
    printed = home.run("python", "-B", str(copied), "--folder", "journeys")
    # What is printed by a command is set in.
    assert missing(shown, printed.replace("\n    ", "\n")) == ""
    assert "Traceback" not in printed
    assert (output / copied.stem).is_dir()
    assert {path for path in written(home) - before if not path.is_relative_to(output)} == set()
