"""The interpreters of other versions of Python that can be had on this machine."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
_NAMED = re.compile(r'"Programming Language :: Python :: (3\.[0-9]+)"')


def named_versions(setup: str) -> list[str]:
    """Returns the versions of Python that a ``setup.py`` says to work with.

    Args:
        setup: its path from the root of the checkout.
    """
    return _NAMED.findall((ROOT / setup).read_text("utf-8"))


def interpreter(version: str) -> str | None:
    """Returns an interpreter that can make environments: of the PATH, or one that pyenv has.

    Args:
        version: such as ``3.12``.
    """
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    beside = sorted(pyenv.glob(f"{version}.*/bin/python{version}"))
    for found in (shutil.which(f"python{version}"), *map(str, beside)):
        # What pyenv puts on the PATH may be there for a version that is not chosen.
        tried = [found or "false", "-c", "import ensurepip, venv"]
        if subprocess.run(tried, capture_output=True).returncode == 0:
            return found
    return None
