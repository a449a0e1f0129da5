"""What a distribution of the package is made from, without what a checkout has beside it."""

import pathlib
import shutil

ROOT = pathlib.Path(__file__).resolve().parent.parent


def copy_sources(folder: pathlib.Path) -> pathlib.Path:
    """Copies the sources into a new folder, with no compiled kernel; returns its ``setup.py``."""
    folder.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "MANIFEST.in", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    for name in ("beam_dp", "pipelines"):
        ignored = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info", "build")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    return folder / "setup.py"
