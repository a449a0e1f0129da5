"""The libraries that the package needs, and the messages about missing ones."""

from __future__ import annotations

import importlib.util

# Each with a module that shows whether it can be loaded. These suffice to read a release.
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
    # Last: it is the slowest, and its runners are checked next.
    "apache-beam": "apache_beam",
}
READS_ARROW = "pyarrow is not installed: pip install pyarrow"


def check_arrow() -> None:
    """Raises ModuleNotFoundError, with what to install, if pyarrow is not installed."""
    if importlib.util.find_spec("pyarrow") is None:
        raise ModuleNotFoundError(READS_ARROW, name="pyarrow")


def missing_part(error: ModuleNotFoundError) -> str | None:
    """Returns a line with what to install if a library is missing; None for other modules."""
    if str(error) == READS_ARROW:
        return READS_ARROW
    modules = {module.partition(".")[0]: package for package, module in MAKING.items()}
    # The name of a module, or of a package without metadata.
    package = modules.get((error.name or "").replace("-", "_"))
    if package is None:
        return None
    return f"{package} is not installed, and what makes releases needs it: pip install beam_dp"
