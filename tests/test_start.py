"""What `beam-dp` says before any work is said at once: nothing heavy is imported for it."""

import difflib
import json
import os
import pathlib
import runpy
import subprocess
import sys

import pytest

from beam_dp.cli.main import PIPELINES, main
from beam_dp.flags.command_line import (
    PROGRAMS,
    SLIP,
    check_files,
    flags_of_program,
    known_beam,
)
from beam_dp.flags.flag import Flag, FlagError
from pipelines.beam_flags import read_beam_flags

ROOT = pathlib.Path(__file__).parents[1]
HEAVY = (
    *("apache_beam", "numpy", "pyarrow", "scipy", "sqlalchemy", "opendp", "rich", "fastavro"),
    *("beam_dp.domain", "beam_dp.mechanisms", "beam_dp.releases", "pipelines.flags"),
)
RELEASE = "release-synthetic-database"
GIVEN = (
    "--epsilon=1 --delta=0 --neighboring=add_or_remove_one --privacy_unit=record"
    f" --num_records=noisy --workload=marginals:2 --output=out --domain={__file__}"
).split()
PLANNED = ["--epsilon=1", "--delta=0", "--neighboring=replace_one", "--privacy_unit=record"]
REFUSED = {
    "is not a flag": [RELEASE, "--epsilom=1"],
    "a whole number or 'noisy'": [RELEASE, *GIVEN[:4], *GIVEN[5:], "--num_records=x", "--input=y"],
    "must be a number": [RELEASE, "--input=x", "--epsilon=one", *GIVEN[1:]],
    "is required": [RELEASE, *GIVEN],
    "is given twice: '1' and '2'": [RELEASE, *GIVEN, "--epsilon=2"],
    "must match a file": [RELEASE, *GIVEN, "--input=no/such/*.parquet"],
    "cannot be read as a file": [RELEASE, *GIVEN[:-1], f"--input={__file__}", "--domain=no"],
    "Unexpected argument 'records.csv'": [RELEASE, *GIVEN, "records.csv"],
    "Put the pattern in quotes": [RELEASE, "--input", "a.csv", "b.csv", *GIVEN],
    "--frobnicate is not a flag": [RELEASE, *GIVEN, f"--input={__file__}", "--frobnicate=1"],
    "Did you mean --runner?": [RELEASE, *GIVEN, f"--input={__file__}", "--runer", "DirectRunner"],
    "--delta is required": ["plan", "--epsilon=1", "--num_records=1", "--domain=a", "--workload=b"],
    "--workload: 'no.jsonl' cannot be read": [
        *("plan", *PLANNED, f"--domain={__file__}", "--workload=no.jsonl", "--num_records=9"),
    ],
    "needs --windows": ["plan", *PLANNED, "--start=now"],
    "--epsilon: 0.0 is not valid": [RELEASE, *GIVEN[1:], f"--input={__file__}", "--epsilon=0"],
    "unless --allow_large_delta is given": [
        *(RELEASE, GIVEN[0], *GIVEN[2:], f"--input={__file__}", "--delta=1e-3"),
    ],
    "--max_records_per_unit is required with": [
        *(RELEASE, *GIVEN[:3], *GIVEN[4:], f"--input={__file__}", "--privacy_unit=person"),
    ],
    **{
        words: [RELEASE, *GIVEN, f"--input={__file__}", *flags.split()]
        for words, flags in {
            "--size is required with --mechanism small_db": "--mechanism=small_db",
            "--size: 0 is not valid": "--mechanism=small_db --size=0",
            "--num_rounds: 0 is not valid: must be an integer from 1": "--num_rounds=0",
            "--num_rounds applies only to": "--mechanism=laplace --num_rounds=2",
            "--max_unit_cost: 0.5 is not valid": "--max_unit_cost=0.5",
            "--stop_below: 2.0 is not valid": "--stop_below=2",
            "--expect_records: -3 is not valid": "--expect_records=-3",
            "--domain_share: 0.9 is not valid": "--domain_share=0.9",
            "--ledger is required with --dataset_id": "--dataset_id=people",
        }.items()
    },
    "--num_records is required with --mechanism auto": [
        *("release-projection", *GIVEN[:4], "--output=out", f"--input={__file__}", "--key=a"),
        *("--max_sparsity=3", "--mechanism=auto"),
    ],
    "--limit: -1 is not valid": ["check-domain", GIVEN[-1], f"--sample={__file__}", "--limit=-1"],
    "--num_records: 0 is not valid": [
        *("plan", *PLANNED, GIVEN[-1], "--workload=marginals:1", "--num_records=0"),
    ],
    "--types: 'age' is not valid": ["init", __file__, "--output=out", "--types=age"],
    "the nearest is 'undiscovered'": ["init", __file__, "--output=out", "--null=undiscover"],
}
SHOWN = [["--help"], ["--version"]]
SHOWN += [[name, flag] for name in PIPELINES for flag in ("--help", "--version")]
SHOWN += [
    [name, "--help"] for name in ("plan", "describe", "answer", "ledger", "finish", "completion")
]
SHOWN += [["completion", shell] for shell in ("bash", "zsh", "fish")]
RUN_ALL = f"""
import contextlib, io, json, sys
from beam_dp.cli.main import main
told = []
for argv in json.loads(sys.argv[1]):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            code = main(argv)
        except SystemExit as exit:
            code = exit.code or 0
    told.append([code, out.getvalue()])
print(json.dumps([told, [name for name in {HEAVY!r} if name in sys.modules]]))
"""


@pytest.mark.job
def test_no_heavy_module_is_imported_for_help_version_or_refusals():
    asked = [*SHOWN, *REFUSED.values()]
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL, json.dumps(asked)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    told, loaded = json.loads(done.stdout)
    assert loaded == []
    shown, refused = told[: len(SHOWN)], told[len(SHOWN) :]
    assert [code for code, _ in shown] == [0] * len(SHOWN)
    for (code, text), expected in zip(refused, REFUSED, strict=True):
        assert code == 2
        assert text.startswith("error: ") and text.count("\n") == 1
        assert expected in text


@pytest.mark.job
@pytest.mark.parametrize("argv", [["--help"], [RELEASE, "--help"], [RELEASE, "--epsilom=1"]])
def test_start_imports_few_modules(argv):
    """Imports are most of what a start costs: there are some 140, and one of numpy has as many."""
    python = [sys.executable, "-X", "importtime", "-m", "beam_dp.cli"]
    done = subprocess.run([*python, *argv], capture_output=True, text=True, cwd=ROOT)
    imported = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    assert 0 < len(imported) < 250


def test_version_flag_prints_the_version_of_the_package(capsys):
    with pytest.raises(SystemExit) as exit:
        main(["--version"])
    assert exit.value.code == 0
    version = capsys.readouterr().out.split()[1]
    assert f'\nversion = "{version}"\n' in (ROOT / "pyproject.toml").read_text("utf-8")


def test_flags_file_is_generated_from_the_programs():
    made = runpy.run_path(str(ROOT / "tools" / "write_flags.py"))["kept_flags"]()
    kept = (ROOT / "beam_dp" / "flags" / "program_flags.json").read_text("utf-8")
    assert kept == made, "run `make generated`"


def test_beam_flags_file_is_generated_from_beam():
    made = runpy.run_path(str(ROOT / "tools" / "write_flags.py"))["kept_beam_flags"]()
    kept = (ROOT / "beam_dp" / "flags" / "beam_flags.json").read_text("utf-8")
    if json.loads(made)["version"] == json.loads(kept)["version"]:
        assert kept == made, "run `make generated`"
    assert json.loads(json.dumps(known_beam())) == json.loads(made)


def test_beam_of_another_version_is_asked_for_its_flags(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "3.99")
    asked = json.loads(json.dumps(known_beam.__wrapped__()))
    assert asked == {**json.loads(json.dumps(known_beam())), "version": "3.99"}


def test_refuses_flags_that_beam_does_not_know():
    with pytest.raises(FlagError, match=r"^--runer is not a flag.*mean --runner\?$"):
        read_beam_flags(["--runner", "PrismRunner", "--runer=x"], [])


def test_no_beam_flag_is_mistaken_for_a_misspelt_flag_of_ours():
    theirs = {*known_beam()["flags"]}
    for name in PROGRAMS:
        ours = {f"--{flag.name}" for flag in flags_of_program(name)}
        near = [
            (each, difflib.get_close_matches(each, ours, n=1, cutoff=SLIP))
            for each in theirs - ours
        ]
        assert [pair for pair in near if pair[1]] == []


FILES = Flag("input", "records", form="files")


def test_finds_hidden_files_like_beam(tmp_path):
    (tmp_path / ".hidden.csv").write_text("a\n")
    check_files([FILES], {"input": str(tmp_path / "*.csv")})


COMMANDS_WITHOUT_NOISE = {
    "plan": [*PLANNED[:3], "--privacy_unit=record", "--num_records=9", "--workload=marginals:1"],
    "check-domain": ["--sample=sample.csv"],
}
SLOW_TO_LOAD = ("scipy.optimize", "scipy.special", "scipy.stats", "sqlalchemy")
SHOW = "print(); print(*sys.modules)"
DRAWS = f"""
import sys
import numpy as np
from beam_dp.privacy.noise.source import NoiseSource
noise = NoiseSource()
noise.laplace(np.zeros(2, np.int64), 1.0), noise.gaussian(np.zeros(2, np.int64), 1.0)
noise.select(np.zeros(2, np.int64), 1.0)
assert "opendp" in sys.modules
{SHOW}
"""


def loaded(folder: pathlib.Path, code: str) -> set[str]:
    """The modules that a process has loaded, where scikit-learn is installed."""
    (folder / "sklearn").mkdir()
    for name in ("__init__", "base", "decomposition", "linear_model"):
        (folder / "sklearn" / f"{name}.py").write_text("BaseEstimator = object\nPCA = object\n")
    path = os.pathsep.join([str(folder), str(ROOT)])
    python = [sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(python, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return {*done.stdout.splitlines()[-1].split()}


@pytest.mark.job
@pytest.mark.parametrize("command", COMMANDS_WITHOUT_NOISE)
def test_command_without_draws_does_not_load_noise(command, tmp_path):
    (tmp_path / "domain.json").write_text('{"a": 3}')
    (tmp_path / "sample.csv").write_text("a\n1\n")
    argv = [command, "--domain=domain.json", *COMMANDS_WITHOUT_NOISE[command]]
    main = f"from beam_dp.cli.main import main; assert main({argv}) == 0"
    found = loaded(tmp_path, f"import sys; {main}; {SHOW}")
    assert "numpy" in found and not {"opendp", "sklearn", *SLOW_TO_LOAD} & found
    assert command != "plan" or "apache_beam" not in found


@pytest.mark.job
def test_answer_loads_few_modules(tmp_path):
    argv = ["answer", str(ROOT / "tests" / "golden" / "synthetic_database"), "--count"]
    main = f"from beam_dp.cli.main import main; assert main({argv}) == 0"
    found = loaded(tmp_path, f"import sys; {main}; {SHOW}")
    assert len([name for name in found if name.partition(".")[0] == "beam_dp"]) <= 90


# The release of a tiny table, by a process that does nothing else.
RELEASED = f"""
import pathlib, sys
from beam_dp.cli.main import main
pathlib.Path("people.csv").write_text("a,b\\n0,1\\n")
flags = {[RELEASE, *GIVEN[:-1], '--domain={"a": 3, "b": 2}', "--input=people.csv"]!r}
sys.argv = ["beam-dp", *flags]
"""


@pytest.mark.job
def test_program_loads_slow_modules_only_when_needed(tmp_path):
    found = loaded(tmp_path, f"{RELEASED}\nassert main() == 0; {SHOW}")
    assert {"apache_beam", "opendp"} <= found
    unused = {*SLOW_TO_LOAD, "pandas", "pymongo", "google.cloud.storage", "boto3"}
    assert not unused & found


@pytest.mark.job
def test_program_loads_filesystems_of_urls(tmp_path):
    code = f"{RELEASED}\nsys.argv[-1] = '--input=gs://'; assert main() == 2; {SHOW}"
    assert {"pandas", "apache_beam.io.gcp.gcsfilesystem"} <= loaded(tmp_path, code)


@pytest.mark.job
def test_other_processes_keep_all_of_beam(tmp_path):
    code = f"{RELEASED}\nassert main(flags) == 0; import apache_beam; {SHOW}"
    assert {"pandas", "apache_beam.io.gcp.gcsfilesystem"} <= loaded(tmp_path, code)


@pytest.mark.job
def test_draw_does_not_load_scikit_learn(tmp_path):
    assert "sklearn" not in loaded(tmp_path, DRAWS)
