"""Users of the installed package type `beam-dp NAME`; every text they read says so."""

from __future__ import annotations

import pathlib
import re
from types import ModuleType

import pytest

from beam_dp.cli import main as cli
from beam_dp.flags import command_line
from pipelines import (
    answer_queries,
    check_domain,
    release_intervals,
    release_projection,
    release_synthetic_database,
    release_windows,
    run_yaml,
)

ROOT = pathlib.Path(__file__).parent.parent
PROGRAMS = {
    "answer-queries": answer_queries,
    "check-domain": check_domain,
    "release-intervals": release_intervals,
    "release-projection": release_projection,
    "release-synthetic-database": release_synthetic_database,
    "release-windows": release_windows,
    "run-yaml": run_yaml,
}
# A folder of that name exists in a checkout only; CONTRIBUTING.md says so to developers.
OF_A_CHECKOUT = re.compile(r"-m (?:beam_dp\.)?pipelines|\bpipelines[./](?:answer|release)_\w+")
DOCUMENTS = ["README.md", "CHANGELOG.md", "docs/*.md", "examples/**/*", "deploy/dataflow/*"]
SOURCES = ["beam_dp/**/*.py", "pipelines/*.py", "Makefile"]


def test_every_program_is_a_command():
    assert {*PROGRAMS} == {*cli.PIPELINES}


def test_help_describes_each_program(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for program, purpose in command_line.PROGRAMS.items():
        assert f"{program.replace('_', '-')} {purpose}" in shown


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("by_command", [True, False])
def test_help_shows_the_command_to_type(name, by_command, capsys):
    with pytest.raises(SystemExit) as exit:
        _ = cli.main([name, "--help"]) if by_command else PROGRAMS[name].main(["--help"])
    assert exit.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: beam-dp {name} [-h]")


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_example_is_a_valid_command(name):
    program: ModuleType = PROGRAMS[name]
    assert f"\n    beam-dp {name} " in (program.__doc__ or "")


@pytest.mark.parametrize("pattern", DOCUMENTS + SOURCES)
def test_installed_texts_name_no_modules_of_the_repository(pattern):
    paths = [path for path in ROOT.glob(pattern) if path.is_file() and path.suffix != ".pyc"]
    assert paths
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if OF_A_CHECKOUT.search(line)
    ]
    assert found == []
