"""An environment of its own for each judge, and how a program there is asked."""

from __future__ import annotations

import fcntl
import json
import pathlib
import subprocess
import sys
from typing import Any

FOLDER = pathlib.Path(__file__).resolve().parent
ENVIRONMENTS = FOLDER.parents[1] / ".venv-judges"
PROGRAM, ANSWER = "asked.py", "answer.json"


def interpreter(name: str, requirements: pathlib.Path) -> str:
    """Returns a Python that has what a file names, made if need be or if the file has changed."""
    place = ENVIRONMENTS / name
    python, stamp = place / "bin" / "python", place / ".stamp"
    wanted = requirements.read_text(encoding="utf-8")
    ENVIRONMENTS.mkdir(exist_ok=True)
    with (ENVIRONMENTS / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two processes would clear what the other installs
        if not (stamp.exists() and stamp.read_text(encoding="utf-8") == wanted):
            subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
            pip = [python, "-m", "pip", "--disable-pip-version-check", "--require-virtualenv"]
            install = [*pip, "install", "--quiet", "--no-compile", "-r", requirements]
            subprocess.run(install, check=True)
            stamp.write_text(wanted, encoding="utf-8")
    return str(python)


class Environment:
    """What ``requirements.txt`` in a judge's folder names, installed apart from this project.

    It is made when it is first needed, and again when that file has changed.

    Args:
        judge: the name of a folder beside this file.
    """

    def __init__(self, judge: str) -> None:
        self.folder = FOLDER / judge
        self._requirements = self.folder / "requirements.txt"

    @property
    def python(self) -> str:
        """The interpreter, made if need be."""
        return interpreter(self.folder.name, self._requirements)

    def ask(self, folder: pathlib.Path, *arguments: str) -> Any:
        """Runs the judge's ``asked.py`` on a folder; returns what it leaves there as JSON."""
        command = [self.python, str(self.folder / PROGRAM), str(folder), *arguments]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            sys.exit(f"error: {self.folder.name}: its program failed:\n{run.stderr[-2000:]}")
        return json.loads((folder / ANSWER).read_text(encoding="utf-8"))

    def versions(self) -> str:
        """Returns the packages that ``requirements.txt`` names, with their versions."""
        lines = self._requirements.read_text(encoding="utf-8").splitlines()
        named = [line.split("#")[0].strip() for line in lines]
        return ", ".join(each.replace("==", " ") for each in named if each)
