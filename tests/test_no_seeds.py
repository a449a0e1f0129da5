"""Nothing that is shipped can make noise repeat: no seed, no flag, no variable.

That only `noise/source.py` draws is a rule of the linter, see `test_architecture.py`.
"""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from source_imports import ROOT, importing

import beam_dp as dp
from beam_dp.flags.command_line import PROGRAMS, flags_of_program

DRAWS = "beam_dp.privacy.noise.source"
# Files that have seeds, of what is drawn from a release that is already public.
SEEDED = {
    "beam_dp/cli/sample.py",
    "beam_dp/imputation.py",
    "beam_dp/models/junction_tree.py",
    "beam_dp/releases/synthetic_database/made_up.py",
    "beam_dp/releases/synthetic_database/release.py",
    "beam_dp/releases/synthetic_database/sampling.py",
}
# Files that read variables of the environment: of what runs, and how it is shown.
READING = {
    "beam_dp/hashing/evaluation.py",
    "pipelines/job_servers.py",
    "pipelines/progress.py",
    "pipelines/runners.py",
}


DOCUMENTED = re.compile(r'"""(?s:.*?)"""|#.*')


def using(sources: dict[str, str], pattern: str) -> set[str]:
    """The files in which something matches that is no documentation."""
    return {
        path for path, source in sources.items() if re.search(pattern, DOCUMENTED.sub("", source))
    }


SEED, VARIABLE = "(?i)seed", r"environ\b|getenv"


def test_only_what_is_drawn_from_a_public_release_has_a_seed(sources):
    assert using(sources, SEED) == SEEDED
    assert importing({path: sources[path] for path in SEEDED}, DRAWS) == []


def test_no_variable_of_the_environment_chooses_noise(sources):
    assert using(sources, VARIABLE) == READING
    assert importing({path: sources[path] for path in READING}, DRAWS) == []


def test_no_program_that_draws_has_a_flag_for_seeds():
    flags = {flag.name for program in PROGRAMS for flag in flags_of_program(program)}
    assert [name for name in flags if "seed" in name] == []


@pytest.mark.parametrize(
    ("source", "pattern"),
    [
        ("def draw(seed=0): pass", SEED),
        ("NOISE = read('BEAM_DP_SEED')", SEED),
        ("noise.random_seed(7)", SEED),
        ("from os import environ; environ['NOISE']", VARIABLE),
        ("import os; os.getenv('NOISE')", VARIABLE),
    ],
)
def test_a_seed_or_a_variable_is_found(source, pattern):
    assert using({"beam_dp/new.py": source}, pattern) == {"beam_dp/new.py"}
    assert using({"beam_dp/new.py": '"""No seed and no os.environ."""'}, pattern) == set()


SEEDS = "SEED PYTHONHASHSEED PYTHONSEED NUMPY_SEED NP_SEED RANDOM_SEED GLOBAL_SEED OPENDP_SEED"
OWN = "SEED NOISE NOISE_SEED RANDOM_SEED HASH_SEED TEST TESTING DEBUG DETERMINISTIC"


@pytest.mark.job
def test_program_draws_anew_whatever_the_environment_says(tmp_path):
    """Two draws of 64 counts, at epsilon 0.1, are equal with a probability below 1e-80."""
    (tmp_path / "domain.json").write_text('{"a": 64}')
    (tmp_path / "table.csv").write_text("a\n" + "\n".join(map(str, range(64))) + "\n")
    command = [
        *(sys.executable, "-m", "beam_dp.cli", "release-synthetic-database", "--input=table.csv"),
        *("--domain=domain.json", "--workload=marginals:1", "--mechanism=laplace"),
        *("--epsilon=0.1", "--delta=0", "--neighboring=replace_one", "--privacy_unit=record"),
        "--num_records=64",
    ]
    known = [name for name in os.environ if name.startswith("BEAM_DP_") or "SEED" in name]
    named = [*known, *SEEDS.split(), *(f"BEAM_DP_{name}" for name in OWN.split())]
    environment = {**os.environ, **dict.fromkeys(named, "7"), "PYTHONPATH": str(ROOT)}
    environment["BEAM_DP_HASHING_BACKEND"] = "numpy"
    noisy = []
    for name in ("one", "other"):
        subprocess.run(
            [*command, f"--output={name}"],
            cwd=tmp_path,
            env=environment,
            check=True,
            capture_output=True,
        )
        release = dp.read_release(str(tmp_path / name))
        assert isinstance(release, dp.SyntheticDatabase) and release.measurements is not None
        (table,) = release.measurements.tables
        noisy.append(table)
    assert noisy[0].size == 64 and not np.array_equal(*noisy)
