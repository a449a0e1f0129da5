"""README and the journeys of its readers, followed with nothing but the wheel."""

import pathlib

import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from documents.belongings import MADE
from documents.blocks import blocks_of
from documents.not_run import reason
from documents.outputs import missing
from documents.reader import words_of
from newcomers import Home

pytestmark = pytest.mark.wheel
(PAGE,) = blocks_of("docs/journeys.md")


def written(home: Home) -> set[pathlib.Path]:
    """Every file but those of the environment, which Python compiles as it goes."""
    environment = home.folder / "environment"
    return {path for path in home.folder.rglob("*") if not path.is_relative_to(environment)}


@pytest.mark.part
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


@pytest.mark.job
def test_readme_can_be_followed(home):
    elsewhere = home.folder / "elsewhere"
    (elsewhere / "visits").mkdir()
    pq.write_table(MADE["visits"](), elsewhere / "visits" / "2024.parquet")
    pyarrow.csv.write_csv(MADE["visits"](), elsewhere / "survey.csv")
    # Beam warns a pipeline of one's own of a library of Google's; the programs keep that quiet.
    python = "import logging\nlogging.disable(logging.WARNING)\n"
    for block in blocks_of("README.md"):
        if reason(block.page, block.text):
            continue
        if block.kind == "json":
            (elsewhere / block.file).write_text(block.text, encoding="utf-8")
        elif block.kind == "python":
            python += block.text
        else:
            for command, shown in block.commands():
                assert missing(shown, home.run(*words_of(command))) == "", command
    home.run("python", "-c", python)
