"""The command line that reads releases."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
from types import ModuleType

import pytest
from jobs import refused_line

from beam_dp.cli import main as cli
from beam_dp.cli.main import command_parsers, main
from beam_dp.flags import command_line

GOLDEN = str(pathlib.Path(__file__).parent / "golden" / "synthetic_database")


@pytest.mark.parametrize("library", ["fastavro", "numpy", "rich"])
def test_names_the_library_that_is_missing(library):
    program = f"""
import sys
sys.modules[{library!r}] = None
from beam_dp.cli.main import main
sys.exit(main(["describe", {GOLDEN!r}]))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"error: describe: {library} is not installed: pip install")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "argv",
    [
        ["finish", "out"],
        ["ledger", "l.sqlite"],
        ["describe", "out"],
    ],
)
def test_relative_path_in_a_removed_folder_is_refused(argv, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(os, "getcwd", lambda: os.stat("removed/folder"))
    refused_line(main, argv, capfd, f"'{argv[1]}' is not valid: must be an absolute path")


def line(capfd: pytest.CaptureFixture[str], *argv: str) -> str:
    return refused_line(main, argv, capfd)


def test_shows_help_without_a_command(capfd):
    assert main([]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("usage: beam-dp ")
    assert "release-synthetic-database" in err


def test_help_command_shows_help_for_all_commands_or_one(capfd):
    def printed(*argv: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(argv)
        assert ended.value.code == 0
        return capfd.readouterr().out

    assert printed("help") == printed("--help")
    assert printed("help", "plan") == printed("plan", "--help")
    assert printed("help", "run-yaml") == printed("run-yaml", "--help")
    assert "'pla'" in line(capfd, "help", "pla")


@pytest.mark.parametrize("second", ["b.sqlite", "postgresql://bob:tell-tale@other/db"])
def test_repeated_ledger_is_refused_without_showing_its_password(second, capfd):
    first = "postgresql://bob:tell-tale@host/db?sslpassword=tell-tale"
    for argv in (["doctor"], ["release-intervals", "--input=a.csv"]):
        told = line(capfd, *argv, "--ledger", first, "--ledger", second)
        assert "twice: 'postgresql://***@host/db?***' and" in told and "tell-tale" not in told


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


ROOT = pathlib.Path(__file__).parent.parent
PROGRAMS = {
    name.replace("_", "-"): command_line.import_program(name) for name in command_line.PROGRAMS
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
