"""Reading a release needs neither Beam nor what draws noise, reads tables or keeps a ledger."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

GOLDEN = pathlib.Path(__file__).with_name("golden")
WITHOUT = ("apache_beam", "dp_accounting", "opendp", "pandas", "pyarrow", "scipy", "sqlalchemy")
PROGRAM = """
import importlib.abc
import sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in WITHOUT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())

from beam_dp.cli.main import main

for arguments in COMMANDS:
    assert main(arguments) == 0, arguments
"""


@pytest.mark.parametrize("release", sorted(each.name for each in GOLDEN.glob("*_[0-9]")))
def test_a_release_is_read_without_what_makes_one(release: str, tmp_path: pathlib.Path) -> None:
    place = str(GOLDEN / release)
    commands = [
        ["describe", place],
        ["report", place, "--output", str(tmp_path / "page.html")],
    ]
    if release == "synthetic_database_1":
        commands.append(["answer", place, "--marginal", "age"])
    else:  # that early one does not state all that would be verified
        commands.append(["verify", place])
    if release.startswith("intervals"):
        commands.append(["answer", place, "--interval", "18", "19"])
    done = subprocess.run(
        [sys.executable, "-c", f"WITHOUT = {WITHOUT}\nCOMMANDS = {commands}\n{PROGRAM}"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "page.html").exists()
