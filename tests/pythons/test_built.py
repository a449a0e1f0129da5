"""What `make dist` has built: complete, the same again, and at home without a compiler."""

import hashlib
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest
from interpreters import DIST, HERE, ROOT, built

pytestmark = [pytest.mark.wheel, pytest.mark.release]
TOOLS = ROOT / ".venv-dist" / "bin" / "python"
HASHES = """
import sys, pathlib, beam_dp.hashing.evaluation as backend
sys.path[:0] = ["tests/golden"]
import test_golden_hashes as golden
assert pathlib.Path(backend.__file__).is_relative_to(sys.argv[1]), backend.__file__
assert backend.available_backends() == ("numpy",)
golden.test_hash_values_are_the_same_as_in_existing_artifacts(golden.fixed_key())
"""


def digests(folder: pathlib.Path) -> dict[str, str]:
    return {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in folder.iterdir()}


def test_wheel_contains_every_committed_file_and_the_kernel():
    listed = subprocess.run(
        ["git", "ls-files", "beam_dp", "pipelines"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    committed = {
        name.replace("pipelines/", "beam_dp/pipelines/", name.startswith("pipelines/"))
        for name in listed.stdout.split()
        if not name.endswith((".c", ".h"))
    }
    with zipfile.ZipFile(built(HERE)) as opened:
        names = [each for each in opened.namelist() if each[-1] != "/"]
    own = sorted(name for name in names if ".dist-info/" not in name)
    assert own == sorted({*committed, "beam_dp/hashing/_kernel.abi3.so"})


@pytest.mark.skipif(not TOOLS.exists(), reason="no .venv-dist: `make dist` makes it")
def test_second_build_has_the_same_bytes(tmp_path):
    again = tmp_path / "again"
    subprocess.run([TOOLS, ROOT / "tools" / "distributions" / "build.py", again], check=True)
    assert digests(again) == digests(DIST)


def test_sources_install_without_a_compiler_and_hash_the_same(tmp_path):
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    nothing = {**os.environ, "CC": "false"}
    asked = ["--no-deps", "--no-compile", "--target", tmp_path]
    subprocess.run([*pip, *asked, built("beam_dp-*.tar.gz")], check=True, env=nothing)
    subprocess.run(
        [sys.executable, "-P", "-c", HASHES, tmp_path],
        check=True, cwd=ROOT, env={**nothing, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
