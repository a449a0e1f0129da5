"""What can be refused, by name: programs with valid flags, and namespaces of Python calls.

Each ``surfaces_*.py`` has a part of them in ``SURFACES``: a ``Program``, or a dictionary of names
in which the ``arguments`` of a refusal are evaluated, such as ``MWEM(num_rounds=0)``.
"""

from __future__ import annotations

import dataclasses
import importlib
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import beam_dp

PUBLIC = {name: getattr(beam_dp, name) for name in beam_dp.__all__}
HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass(frozen=True)
class Program:
    """A program: its main function, and flags of a valid run in a folder, whose files it writes.

    ``words``: what follows `beam-dp` for such arguments.
    """

    main: Callable[[Sequence[str]], int]
    flags: Callable[[pathlib.Path], Mapping[str, str | None]] = lambda folder: {}
    words: Callable[[Sequence[str]], list[str]] = list

    def argv(
        self, folder: pathlib.Path, arguments: Mapping[str, str | None] | Sequence[str]
    ) -> list[str]:
        """The valid flags, some changed or left out (None); a list stands for itself.

        ``FOLDER`` in an argument is the folder's path, ``TESTS`` that of the tests.
        """
        valid = self.flags(folder)
        if isinstance(arguments, Mapping):
            given = {**valid, **arguments}
            argv = [f"--{name}={value}" for name, value in given.items() if value is not None]
        else:
            argv = [*arguments]
        places = {"FOLDER": str(folder), "TESTS": str(HERE.parent)}
        for name, path in places.items():
            argv = [each.replace(name, path) for each in argv]
        return argv


def but_for(call: Callable[..., Any], *first: Any, **valid: Any) -> Callable[..., Any]:
    """A call whose arguments are valid, but for what is changed."""
    return lambda *given, **changed: call(*first, *given, **{**valid, **changed})


Surface = Program | dict[str, Any]
SURFACES: dict[str, Surface] = {}
for path in sorted(HERE.glob("surfaces_*.py")):
    part = importlib.import_module(path.stem).SURFACES
    assert not part.keys() & SURFACES.keys(), path
    SURFACES |= part
