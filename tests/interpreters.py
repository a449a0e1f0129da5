"""What `make dist` has built, and the interpreters of this machine to try it with."""

import os
import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
HERE = f"beam_dp-*-cp311-abi3-*_{os.uname().machine}.whl"
_NAMED = re.compile(r'"Programming Language :: Python :: (3\.[0-9]+)"')


def named_versions() -> list[str]:
    """Returns the versions of Python that the package says to work with."""
    return _NAMED.findall((ROOT / "pyproject.toml").read_text("utf-8"))


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


def built(pattern: str) -> pathlib.Path:
    """Returns the file in ``dist/`` that a pattern names."""
    found = list(DIST.glob(pattern))
    assert len(found) == 1, f"dist: {pattern} is there {len(found)} times; `make dist` makes it"
    return found[0]
