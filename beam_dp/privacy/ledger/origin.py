"""Who paid for a release, why, and where it went."""

from __future__ import annotations

import dataclasses
import getpass
import os
from typing import Any, Self

from beam_dp.errors import InputError

# How many characters each of them may have.
LONGEST = {"who": 200, "purpose": 500, "output": 4096}


@dataclasses.dataclass(frozen=True)
class Origin:
    """Who pays for a release, why, and where it goes: for people who read the ledger.

    It stands in the ledger beside the parameters, and nothing that is released depends on it. It is
    public to whoever reads the ledger, and must tell nothing of a record.

    Args:
        who: a name; that of the operating system's user by default.
        purpose: why, in up to 500 characters; None where it was not said.
        output: the directory or URL of the release; None where it is not known.

    Raises:
        InputError: if one is no text of printable characters, empty or too long.

    Example:
        >>> Origin("alice", "monthly report").to_json()
        {'who': 'alice', 'purpose': 'monthly report', 'output': None}
    """

    who: str = dataclasses.field(default_factory=lambda: system_user())
    purpose: str | None = None
    output: str | None = None

    def __post_init__(self) -> None:
        for name, most in LONGEST.items():
            text = getattr(self, name)
            if text is None and name != "who":
                continue
            if not (isinstance(text, str) and 1 <= len(text) <= most and text.isprintable()):
                raise InputError(name, text, f"must be 1 to {most:,} printable characters")

    def to_json(self) -> dict[str, str | None]:
        """Returns it as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Self | None:
        """Returns what ``to_json`` wrote; None for anything else, which an entry may hold."""
        if not isinstance(value, dict) or value.keys() != LONGEST.keys():
            return None
        try:
            return cls(**value)
        except InputError:
            return None


def place_text(output: str) -> str:
    """Returns where an output is, as an entry says it: a URL, or the whole path of a folder."""
    place = output if "://" in output else os.path.abspath(output)
    # A folder may have any name; the ledger has words for people.
    shown = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in place)
    return shown[: LONGEST["output"]]


def system_user() -> str:
    """Returns the name of the operating system's user; its number where it has no name."""
    try:
        import pwd

        name = pwd.getpwuid(os.getuid()).pw_name
    except ImportError:  # not on Windows
        name = getpass.getuser()
    except KeyError:  # in a container
        name = f"uid {os.getuid()}"
    return name if name.isprintable() and name else "unknown"
