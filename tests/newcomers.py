"""Somebody who installed the wheel, and nothing else, far from any checkout."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass

from package_sources import ROOT, copy_sources
from patience import HANG_SECONDS

# What tells Python to look elsewhere than in its own environment or to compile what it imports each
# time, and us to work otherwise.
HIDDEN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
HIDDEN += ("BEAM_DP_HASHING_BACKEND",)
UV = shutil.which("uv")
CONSTRAINTS = ROOT / "tools" / "constraints.txt"
# Releases that earlier versions wrote.
GOLDEN = ROOT / "tests" / "golden"
GOLDEN_RELEASES = sorted(each.parent.name for each in GOLDEN.glob("*/*.json"))
# The progress of a job, what `release` assumes, what is said of the epsilon of tests whose noise
# hides no lost record, and of columns that noise has hidden in part.
OUR_LINE = re.compile(
    r"\[ *[0-9]+\.[0-9] s\] .*|warning: epsilon [15]000 protects little: .*"
    r"|Flags that are not given have their defaults\..*|  beam-dp (?:init|release-synthetic).*"
    r"|warning: (?:Only one bin|Far values may be cut|More than half of the rows)[^:]*: .*"
)


@dataclass(frozen=True)
class Home:
    """A folder with an environment that holds the wheel and what it requires, and with data.

    Args:
        folder: of both.
    """

    folder: pathlib.Path

    def install(self, *arguments: str | pathlib.Path) -> None:
        """Installs packages, in the versions of ``constraints.txt``.

        uv links the files of its cache; pip, which takes longer, compiles none in advance.
        """
        python = self.folder / "environment" / "bin" / "python"
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--no-compile"]
        tool = [UV, "pip", "install", "--python", python] if UV else pip
        command = [*tool, "--quiet", "--constraint", CONSTRAINTS, *arguments]
        elsewhere = self.folder / "elsewhere"
        subprocess.run(command, check=True, cwd=elsewhere, env=self.environment())

    def run(self, *command: str, **environment: str) -> str:
        """Runs a command of the environment as a user would; returns what it printed.

        Any other line of standard error than ours, such as a warning of a library, fails.
        """
        result = self._run(*command, **environment)
        assert result.returncode == 0, f"{shlex.join(command)}\n{result.stderr}"
        strange = [line for line in result.stderr.splitlines() if not OUR_LINE.fullmatch(line)]
        assert strange == []
        return result.stdout

    def refused(self, *command: str) -> str:
        """Runs a command that must be refused by one line, which is returned."""
        result = self._run(*command)
        assert (result.returncode, result.stdout) == (2, ""), result
        assert re.fullmatch(r"error: [^\n]+\n", result.stderr), result.stderr
        return result.stderr

    def examples(self) -> pathlib.Path:
        """Returns a copy of the examples, outside of the checkout."""
        copied = self.folder / "examples"
        if not copied.exists():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / "examples", copied, ignore=ignored)
        return copied

    def check_reading(self, release: str) -> None:
        """Describes, verifies and reports a release of an earlier version."""
        place = str(GOLDEN / release)
        assert self.run("beam-dp", "describe", place)
        assert "hold" in self.run("beam-dp", "verify", place)
        page = self.folder / "elsewhere" / f"{release}.html"
        assert page.name in self.run("beam-dp", "report", place, "--output", page.name)
        assert page.read_text("utf-8").lower().startswith("<!doctype html>")

    def environment(self) -> dict[str, str]:
        """The variables of its commands."""
        inherited = {name: value for name, value in os.environ.items() if name not in HIDDEN}
        return {**inherited, "TMPDIR": str(self.folder / "temporary"), "COLUMNS": "80"}

    def _run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.folder / "environment" / "bin" / command[0]), *command[1:]],
            cwd=self.folder / "elsewhere",
            env={**self.environment(), **environment},
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
        )


def built_wheel(folder: pathlib.Path) -> pathlib.Path:
    """Builds the wheel of a checkout, without what it requires; returns its path."""
    copy_sources(folder / "sources")
    pip = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--wheel-dir"]
    tool = [UV, "build", "--quiet", "--wheel", "--out-dir"] if UV else pip
    subprocess.run([*tool, folder / "wheels", folder / "sources"], check=True, cwd=folder)
    (wheel,) = (folder / "wheels").glob("*.whl")
    return wheel


def empty_home(folder: pathlib.Path, python: str = sys.executable) -> Home:
    """Makes an environment of an interpreter that holds pip, and no other package."""
    for name in ("temporary", "elsewhere"):
        (folder / name).mkdir()
    tool = [UV, "venv", "--quiet", "--seed", "--python", python] if UV else [python, "-m", "venv"]
    subprocess.run([*tool, folder / "environment"], check=True)
    return Home(folder)


def installed(
    folder: pathlib.Path, *arguments: str | pathlib.Path, python: str = sys.executable
) -> Home:
    """Makes an environment of an interpreter, and installs packages there."""
    home = empty_home(folder, python)
    home.install(*arguments)
    return home


def reading_line(wheel: str | pathlib.Path) -> list[str]:
    """Returns what README says to install where releases are read only, with this wheel."""
    line = re.search(
        r"^    pip install (--no-deps beam_dp .*)$", (ROOT / "README.md").read_text("utf-8"), re.M
    )
    assert line is not None
    return [str(wheel) if word == "beam_dp" else word for word in line[1].split()]
