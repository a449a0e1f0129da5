"""The command line that reads releases."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest
from jobs import refused_line

import beam_dp as dp
from beam_dp.cli import main as cli
from beam_dp.cli.main import command_parsers, main
from beam_dp.flags import command_line
from beam_dp.privacy.ledger.entries import Origin
from beam_dp.privacy.loss import KINDS, Loss
from pipelines import (
    answer_queries,
    check_domain,
    release_intervals,
    release_projection,
    release_synthetic_database,
    release_windows,
    run_yaml,
)

DOMAIN = dp.parse_domain(
    """{"attributes": [
        {"name": "getting in/out of bed", "type": "boolean"},
        {"name": "age, in [bold]years[/]", "type": "numeric", "edges": [0, 20, 40, 100]},
        {"name": "sex", "type": "categorical", "values": ["Female", "Male"], "nullable": true}]}"""
)


@pytest.fixture
def directory(tmp_path) -> str:
    """A release of 60 records whose hypothesis is uniform over sex and age, all out of bed."""
    workload = dp.marginals(DOMAIN, ways=2)
    release = dp.SyntheticDatabase(
        domain=DOMAIN,
        workload=workload,
        guarantee=dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "person", 3),
        mechanism="gaussian",
        num_records=60,
        num_records_is_public=False,
        codes=DOMAIN.codes([9, 10]),
        counts=np.array([20, 40]),
        potentials=[(("getting in/out of bed",), np.array([-800.0, 0.0]))],
        draw_id="0123456789abcdef" * 2,
        noise=[{"tables": 3, "distribution": "discrete_gaussian", "scale": 7.0}],
        errors={
            names: {"standard_error": 7.0, "bound": 30.5, "failure_probability": 0.05}
            for names in workload
        },
        plan={"num_rounds": 12},
        fit={"residual": 0.25},
    )
    dp.write_release(release, tmp_path / "release")
    return str(tmp_path / "release")


@pytest.mark.parametrize("library", ["fastavro", "numpy", "rich"])
def test_names_the_library_that_is_missing(library, directory, capfd, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] in (library, "beam_dp")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    refused_line(main, ["describe", directory], capfd, f"{library} is not installed: pip install")


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


def test_describe_shows_guarantee(directory, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["describe", directory]) == 0
    out = capfd.readouterr().out
    for text in (
        "epsilon 1, delta 1e-09, add or remove one",
        "one person, of which at most 3 records are used",
        "60 (a noisy count)",
        "3 marginals",
        "discrete Gaussian",
        "num_rounds",
        "getting in/out of bed",
        "age, in [bold]years[/]",  # a name is a name, not markup
    ):
        assert text in out


def test_describe_json_prints_the_card(directory, capfd):
    assert main(["describe", directory, "--json"]) == 0
    card = json.loads(capfd.readouterr().out)
    assert card == json.loads(pathlib.Path(directory, "card.json").read_text())


def test_answer_prints_values_standard_error_and_bound(directory, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["answer", directory, "--marginal", "sex,getting in/out of bed"]) == 0
    out = capfd.readouterr().out
    assert len(re.findall(r"^[Tt]rue .* 20\.0$", out, re.M)) == 3
    assert len(re.findall(r"^[Ff]alse .* 0\.0$", out, re.M)) == 3
    assert "standard error of a count is 7.0 records; with probability 95 %, all counts" in out
    assert "within 30.5 of the truth." in out


def test_answer_says_that_a_marginal_was_not_measured(directory, capfd):
    assert main(["answer", directory, "--marginal", "sex"]) == 0
    assert "did not measure this whole marginal" in capfd.readouterr().out
    assert main(["answer", directory, "--marginal", "sex,getting in/out of bed"]) == 0
    assert "did not measure" not in capfd.readouterr().out


def test_json_output_of_answer_lists_tables(directory, capfd):
    tables = ["--marginal=sex", "--marginal=sex,getting in/out of bed"]
    assert main(["answer", directory, "--json", *tables]) == 0
    first, second = json.loads(capfd.readouterr().out)
    assert first["marginal"] == ["sex"]
    assert first["labels"] == {"sex": ["Female", "Male", "null"]}
    np.testing.assert_allclose(first["records"], [20, 20, 20])
    assert first["standard_error"] is None  # the release was not made for this one
    np.testing.assert_allclose(second["records"], [[0] * 3, [20] * 3], atol=1e-9)
    assert second["bound"] == 30.5


def test_name_with_comma_is_one_attribute(directory, capfd):
    assert main(["answer", directory, "--json", "--marginal", "age, in [bold]years[/]"]) == 0
    (answer,) = json.loads(capfd.readouterr().out)
    np.testing.assert_allclose(answer["records"], [20, 20, 20])


def test_answers_queries_from_json_lines(directory, tmp_path, capfd):
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"marginal": ["sex"]}\n{"marginal": ["age, in [bold]years[/]", "sex"]}\n')
    assert main(["answer", directory, "--json", "--queries", str(queries)]) == 0
    assert [len(answer["marginal"]) for answer in json.loads(capfd.readouterr().out)] == [1, 2]


def test_long_table_is_truncated_with_a_notice(directory, capfd):
    assert main(["answer", directory, "--marginal=sex", "--limit=2"]) == 0
    out = capfd.readouterr().out
    assert "2 of 3 cells" in out
    assert "null" not in out


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


DECLARATION = (
    "--epsilon=1",
    "--delta=1e-9",
    "--privacy_unit=person",
    "--neighboring=add_or_remove_one",
)


def test_declares_spends_from_and_prints_a_ledger(tmp_path, capfd, monkeypatch):
    ledger_url = f"sqlite:///{tmp_path}/ledger.sqlite"
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["ledger", ledger_url, "--declare", "[bold]visits[/]", *DECLARATION]) == 0
    told = " ".join(capfd.readouterr().out.split())
    assert (
        "[bold]visits[/] protects person, add or remove one budget epsilon 1, delta 1e-09" in told
    )
    assert (
        "left epsilon 1 for a release without delta, such as one with Laplace noise epsilon 1"
        in told
    )
    guarantee = dp.Guarantee(0.25, 0.0, "add_or_remove_one", "person", 3)
    origin = Origin("Zoë", "the monthly report, " * 10, "/data/[red]out")
    ledger = dp.Ledger(ledger_url)
    paid = "[bold]visits[/]", guarantee, Loss.pure(0.25), "laplace"
    token = ledger.spend(*paid, origin=origin)
    assert main(["ledger", ledger_url]) == 0
    out = capfd.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    told = " ".join(out.split())
    assert "spent epsilon 0.25 at this delta left epsilon 0.75 for a release without" in told
    assert "adds up pure_first: epsilons add up until a release needs delta; it and later" in told
    assert "one with Laplace noise epsilon 0.75 for a release with Gaussian noise" in told
    (entry,) = ledger.entries("[bold]visits[/]")
    when = entry.spent_at.replace("T", " ").replace("+00:00", " UTC")
    paid = "[bold]visits[/]/1 laplace, epsilon 0.25, delta 0, spent"
    assert f"{paid} {when} by Zoë for the monthly report, the monthly" in told
    assert "to /data/[red]out state spent paid, and nothing was drawn" in told
    assert "submitted noise" not in told and told.endswith("the command again, which pays again")
    ledger.mark_submitted(token)
    assert main(["ledger", ledger_url]) == 0
    told = " ".join(capfd.readouterr().out.split())
    assert "delta 0, submitted" in told and "spent paid" not in told
    assert "submitted noise may have been drawn" in told and "beam-dp finish OUTPUT" in told
    assert main(["ledger", ledger_url, "--json"]) == 0
    (dataset,) = json.loads(capfd.readouterr().out)["datasets"]
    assert dataset["spent_epsilon"] == pytest.approx(0.25)
    assert dataset["remaining_epsilon"] == dict.fromkeys(KINDS, 0.75)
    assert dataset["composition"] == "pure_first"
    assert dataset["entries"][0]["loss"]["epsilon"] == 0.25
    assert dataset["entries"][0]["origin"] == origin.to_json()


def test_prints_renewing_budget_with_its_worst_case(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    ledger = dp.Ledger(str(tmp_path / "ledger"))
    ledger.declare("visits", 10.0, 1e-6, "person", "add_or_remove_one")
    guarantee = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "person", 3)
    worst = {"periods": 7, "epsilon": 7.0, "delta": 7e-9}
    for mechanism, parameters in (
        ("windows", {"horizon_id": "a", "worst_case": worst}),
        ("windows", {"horizon_id": "b", "worst_case": {**worst, "periods": 1}}),
        ("windows", {"horizon_id": "c", "worst_case": {"periods": "7"}}),
        ("windows", {"horizon_id": "d"}),
        ("laplace", {"worst_case": worst}),
    ):
        ledger.spend("visits", guarantee, Loss.gaussian(0.1), mechanism, parameters)
    assert main(["ledger", str(tmp_path / "ledger")]) == 0
    out = capfd.readouterr().out
    whole = "windows (all together 7 times: epsilon 7, delta 7e-09)"
    assert f"visits/1   {whole}, epsilon 1, delta 1e-09, spent" in out
    assert out.count("all together") == 1


def test_every_cell_is_shown_if_the_limit_is_huge(directory, capfd):
    assert main(["answer", directory, "--marginal", "sex", "--limit", str(10**20)]) == 0
    assert "Male" in capfd.readouterr().out


def test_escape_sequences_in_labels_are_not_printed(tmp_path, capfd):
    domain = dp.Domain((dp.CategoricalAttribute("records", ("\x1b[2Jgone", "b")),))
    release = dp.SyntheticDatabase(
        domain=domain,
        workload=dp.marginals(domain, ways=1),
        guarantee=dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1),
        mechanism="gaussian",
        num_records=1,
        num_records_is_public=False,
        codes=[np.array([0])],
        counts=np.array([1]),
        potentials=[],
        draw_id="0" * 32,
    )
    dp.write_release(release, tmp_path / "release")
    for command in (["describe"], ["answer", "--marginal", "records"]):
        assert main([command[0], str(tmp_path / "release"), *command[1:]]) == 0
        out = capfd.readouterr().out
        assert "gone" in out
        assert "\x1b" not in out


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
