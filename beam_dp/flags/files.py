"""Flags that name files: what is surely not there, seen without the filesystems of Beam."""

from __future__ import annotations

import errno
import glob
import os
import re
from collections.abc import Iterable, Mapping

from beam_dp.flags.flag import Flag, refused

# Here Python's patterns mean what Beam's do; of the rest, such as [a-z] and **, Beam decides.
_PLAIN_PATTERN = re.compile(r"(?!.*\*\*)[^\[\]{}\\]*")


def check_files(flags: Iterable[Flag], texts: Mapping[str, str | None]) -> None:
    """Refuses local files that are not there; what is there may be refused later.

    Args:
        flags: of a program.
        texts: the text of each flag; None where it was not given.

    Raises:
        FlagError: naming the flag.
    """
    for flag in flags:
        text = texts.get(flag.name)
        # A colon is in other places than this machine, and in workloads that need no file.
        if text is None or ":" in text or text.lstrip().startswith("{"):
            continue
        if flag.form == "file" and not os.path.exists(text):
            condition = (
                f"must be a file that can be read ({os.strerror(errno.ENOENT)}): {flag.help}"
            )
            raise refused(flag.name, text, condition)
        if flag.form == "files" and not _may_match(text):
            raise refused(flag.name, text, "must match a file")


def _may_match(pattern: str) -> bool:
    """Returns whether there may be files of a pattern of this machine.

    Example:
        >>> _may_match(__file__), _may_match(__file__ + ".no*.such?"), _may_match("no/such/[a-z]")
        (True, False, True)
    """
    if _PLAIN_PATTERN.fullmatch(pattern) is None:
        return True
    return next(glob.iglob(pattern, include_hidden=True), None) is not None
