"""The libraries that the package needs, and names whose modules are imported on first use."""

from __future__ import annotations

import ast
import importlib.util
import pathlib
from collections.abc import Mapping
from typing import Any

# Libraries for reading a release, each with a module to import as a test.
READING = {
    "numpy": "numpy",
    "fastavro": "fastavro",
    "rich": "rich",
    "shtab": "shtab",
    "threadpoolctl": "threadpoolctl",
}
MAKING = {
    "scipy": "scipy",
    "pyarrow": "pyarrow",
    "cramjam": "cramjam",
    "zstandard": "zstandard",
    "opendp": "opendp.measurements",
    "sqlalchemy": "sqlalchemy",
    "docstring_parser": "docstring_parser",
    "jinja2": "jinja2",
    "jsonschema": "jsonschema",
    "pandas": "pandas",
    "pyyaml": "yaml",
    # Beam is last, because its import is the slowest, and Beam's runners are checked next.
    "apache-beam": "apache_beam",
}


def check_installed(module: str, package: str | None = None) -> None:
    """Raises ModuleNotFoundError, with the package to install, if a module is not installed."""
    if importlib.util.find_spec(module) is None:
        cure = f"pip install {package or module}"
        raise ModuleNotFoundError(f"{module} is not installed: {cure}", name=module)


def missing_part(error: ModuleNotFoundError) -> str | None:
    """Returns a line with the package to install for a missing library; None for other modules."""
    if str(error).startswith(f"{error.name} is not installed: "):
        return str(error)
    modules = {module.partition(".")[0]: package for package, module in MAKING.items()}
    # The error names a module, or a package without metadata.
    name, dot, _ = (error.name or "").replace("-", "_").partition(".")
    if dot and importlib.util.find_spec(name) is not None:
        return None
    if name in READING:
        return f"{name} is not installed: pip install {name}"
    package = modules.get(name)
    if package is None:
        return None
    return f"{package} is not installed, and what makes releases needs it: pip install beam_dp"


def homes_of(file: str) -> dict[str, str]:
    """Returns the module of each name that a package imports for type checkers."""
    tree = ast.parse(pathlib.Path(file).read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    return {
        alias.name: node.module or ""
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def from_home(package: str, homes: Mapping[str, str], name: str) -> Any:
    """Returns the object that a package exports under a name; imports the object's module first."""
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(homes[name]), name)
    except ModuleNotFoundError as error:
        cure = missing_part(error)
        if cure is None:
            raise
        raise ModuleNotFoundError(f"{package}.{name}: {cure}", name=error.name) from None
