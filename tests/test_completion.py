"""Completion of `beam-dp` in shells: what a real bash makes of the printed script."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from beam_dp.cli.main import command_parsers, main

BASH = shutil.which("bash")
TRY = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 ))
run=$(complete -p beam-dp); run=${run#*-F }; ${run%% *}
printf '%s\\n' "${COMPREPLY[@]}"
"""


def script(capsys: pytest.CaptureFixture[str], shell: str) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.job
@pytest.mark.skipif(BASH is None, reason="no bash")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("pl", "plan"),
        ("release-i", "release-intervals"),
        ("completion ", "bash zsh fish"),
        ("release-intervals --eps", "--epsilon"),
        ("release-intervals --runner FlinkRunner --eps", "--epsilon"),
        ("release-synthetic-database --epsilon 1 --neighboring a", "add_or_remove_one"),
        ("release-synthetic-database --mechanism ", "mwem laplace gaussian small_db"),
        ("plan --neighboring r", "replace_one"),
        ("check-domain --domain vis", "visits.json"),
        ("release-windows --input land", "landing"),
        ("describe out", "out"),
        ("describe vis", ""),  # a release is a folder
        ("answer out --queries vis", "visits.json"),
    ],
)
def test_bash_completes_commands_flags_choices_and_files(typed, offered, tmp_path, capsys):
    (tmp_path / "visits.json").write_text("{}")
    for folder in ("landing", "out"):
        (tmp_path / folder).mkdir()
    (tmp_path / ".script").write_text(script(capsys, "bash"))
    assert BASH is not None
    done = subprocess.run(
        [BASH, "--norc", "-c", TRY, "bash", ".script", "beam-dp", *typed.split(" ")],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout.split() == offered.split()
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_script_has_every_command_and_flag(shell, capsys):
    text = script(capsys, shell)
    _, commands = command_parsers()
    for name, parser in commands.items():
        assert name in text
        for action in parser._actions:
            for option in action.option_strings:
                assert option.lstrip("-") in text
    assert "small_db" in text  # a choice


@pytest.mark.job
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_installed_shells_parse_their_scripts(shell, tmp_path, capsys):
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell}")
    path = tmp_path / "script"
    path.write_text(script(capsys, shell))
    done = subprocess.run([program, "--no-execute", str(path)], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
