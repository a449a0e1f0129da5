"""Which libraries the package needs, and what is said where one is missing."""

from __future__ import annotations

import importlib.util

# Each with the module that shows whether it can be loaded. `--no-deps` and these read a release.
READING = {"numpy": "numpy", "rich": "rich", "shtab": "shtab", "threadpoolctl": "threadpoolctl"}
MAKING = {
    "scipy": "scipy",
    "pyarrow": "pyarrow",
    "fastavro": "fastavro",
    "cramjam": "cramjam",
    "zstandard": "zstandard",
    "opendp": "opendp.measurements",
    "sqlalchemy": "sqlalchemy",
    "docstring_parser": "docstring_parser",
    "jinja2": "jinja2",
    "jsonschema": "jsonschema",
    "pandas": "pandas",
    "pyyaml": "yaml",
    # Last: it is the slowest, and its runners are asked at once.
    "apache-beam": "apache_beam",
}
READS_ARROW = "pyarrow is not installed: pip install pyarrow"


def check_arrow() -> None:
    """Raises ModuleNotFoundError, which says how to get it, where pyarrow is not installed."""
    if importlib.util.find_spec("pyarrow") is None:
        raise ModuleNotFoundError(READS_ARROW, name="pyarrow")


def missing_part(error: ModuleNotFoundError) -> str | None:
    """Returns how to get a library that makes releases, where an import failed for lack of it.

    Returns:
        One line; None if another module is missing.
    """
    if str(error) == READS_ARROW:
        return READS_ARROW
    modules = {module.partition(".")[0]: package for package, module in MAKING.items()}
    # Of a module, or of a package without metadata; a part that another version has is no library.
    package = modules.get((error.name or "").replace("-", "_"))
    if package is None:
        return None
    return f"{package} is not installed, and what makes releases needs it: pip install beam_dp"
