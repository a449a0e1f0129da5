"""Where the programs are that need Beam: inside the package once installed, else beside it."""

from __future__ import annotations

import importlib
import importlib.util
import pathlib
from types import ModuleType


def import_program(name: str) -> ModuleType:
    """Imports a module of ``pipelines/``.

    Args:
        name: of the module.

    Raises:
        ModuleNotFoundError: if the package is neither installed nor in a checkout.
    """
    beside = pathlib.Path(__file__).parent.parent / "pipelines" / "__init__.py"
    found = importlib.util.find_spec("pipelines")
    # Others may have a package of that name too.
    is_checkout = found is not None and found.origin == str(beside)
    package = "pipelines" if is_checkout else "beam_dp.pipelines"
    return importlib.import_module(f"{package}.{name}")
