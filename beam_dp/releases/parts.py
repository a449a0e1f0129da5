"""The kinds of releases, and the modules of each kind, which are imported by name."""

from __future__ import annotations

import importlib
from typing import Any

# From the name of each kind in cards to the folder of the kind, next to this file. A folder has
#   files.py     ``payload``: returns the files of a release, by name; and ``read``: reads a
#                release from its card and payload, or raises InputError or DamagedFileError;
#   verify.py    ``verify``: verifies a release.
# The file of the same name in ``beam_dp/views`` has
#   ``describe``: returns the tables that `beam-dp describe` prints;
#   ``report``: returns the sections of `beam-dp report`;
#   ``answer``: prints the answers that a `beam-dp answer` command asks for;
#   ``compare``: yields the differences of two releases, for cells that are not of marginals.
# A module is imported when it is first needed: reading one kind does not load other kinds' code.
KINDS = {
    "synthetic_database": "synthetic_database",
    "intervals": "intervals",
    "sparse_release": "sketches",
    "answers": "answers",
    "window_tables": "windows",
    "domain": "domain",
}
# The directory of a horizon contains releases but has no payload of its own.
_FOLDERS = {**KINDS, "horizon": "windows"}


def part(kind: str, name: str) -> Any:
    """Returns a module from the folder of a kind, such as ``part("intervals", "files")``."""
    return importlib.import_module(f"beam_dp.releases.{_FOLDERS[kind]}.{name}")


def view_of(kind: str) -> Any:
    """Returns the module that shows the releases of a kind."""
    return view(_FOLDERS[kind])


def view(name: str) -> Any:
    """Returns a module that shows releases; by name, because it imports all kinds of them."""
    return importlib.import_module(f"beam_dp.views.{name}")
