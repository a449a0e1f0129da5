"""Which modules an installation without extras has: those of what pyproject.toml requires.

The environment of the tests has more: what extras ask for, and what those ask for in turn.
"""

import functools
import importlib.metadata
import re
import sys

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _required(package: str) -> set[str]:
    """The packages that one requires without extras; other conditions are taken to hold."""
    lines = importlib.metadata.requires(package) or ()
    found = [_NAME.match(line) for line in lines if "extra ==" not in line]
    return {_canonical(name[0]) for name in found if name}


def _needed() -> set[str]:
    """The packages of an installation of ``beam_dp`` without extras, as far as there are here."""
    found, waiting = {"beam-dp"}, ["beam-dp"]
    while waiting:
        try:
            names = _required(waiting.pop())
        except importlib.metadata.PackageNotFoundError:
            continue  # of another system, or another version of Python
        waiting += names - found
        found |= names
    return found


@functools.cache
def declared_modules() -> frozenset[str]:
    """The top-level modules of the packages that pyproject.toml itself requires."""
    return _modules(_required("beam_dp"))


@functools.cache
def undeclared_modules() -> frozenset[str]:
    """The top-level modules that are here, and would not be in an installation without extras."""
    owners = importlib.metadata.packages_distributions()
    return frozenset(owners) - _modules(_needed())


def _modules(packages: set[str]) -> frozenset[str]:
    owners = importlib.metadata.packages_distributions()
    return frozenset(
        module for module, names in owners.items() if packages & {*map(_canonical, names)}
    )


class _Refusing:
    """A finder that finds nothing, loudly."""

    def __init__(self, modules: frozenset[str]) -> None:
        self._modules = modules

    def find_spec(self, name: str, *_: object) -> None:
        if name.partition(".")[0] in self._modules:
            raise ModuleNotFoundError(f"No module named {name!r}: undeclared", name=name)


def forbid_undeclared() -> None:
    """From now on nothing can be imported that an installation without extras would not have."""
    sys.meta_path.insert(0, _Refusing(undeclared_modules()))
