"""Which distributions are here: all of the package, or `beam_dp_reader` alone."""

from __future__ import annotations

import importlib.util

MAKES_RELEASES = "only what reads releases is installed here; the rest: pip install beam_dp"
READS_ARROW = "pyarrow is not installed here: pip install 'beam_dp_reader[arrow]'"
# What its commands and names may ask for; any other module should be here.
_NOT_BROUGHT = {"apache-beam", "apache_beam", "beam_dp", "opendp", "pyarrow", "scipy", "sqlalchemy"}


def only_reads() -> bool:
    """Whether what reads releases is here, and what makes them is not."""
    found = importlib.util.find_spec("beam_dp.transforms")
    # Caches that an uninstallation leaves behind are found too: a folder without a file.
    return found is None or found.origin is None


def check_arrow() -> None:
    """Raises ModuleNotFoundError, which says how to get it, where pyarrow is not installed."""
    if importlib.util.find_spec("pyarrow") is None:
        raise ModuleNotFoundError(READS_ARROW, name="pyarrow")


def missing_part(error: ModuleNotFoundError) -> str | None:
    """Returns how to get a module, where it is one that `beam_dp_reader` does not bring.

    Args:
        error: of an import.

    Returns:
        One line; None where all of the package is installed.
    """
    package = (error.name or "").partition(".")[0]
    if package not in _NOT_BROUGHT or not only_reads():
        return None
    return READS_ARROW if package == "pyarrow" else MAKES_RELEASES
