"""Small local files that are written whole, or not at all."""

from __future__ import annotations

import os

from beam_dp.errors import InputError


def write_new_file(path: str | os.PathLike[str], data: bytes, *, is_private: bool = False) -> None:
    """Writes a file that must not exist yet; of one that can't be written whole nothing is left.

    Raises:
        InputError: naming the output, if there is such a file already, or it can't be written.

    Example:
        >>> write_new_file("domain.json", b"{}")  # doctest: +SKIP
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(path, flags, 0o600 if is_private else 0o666)
        with open(handle, "wb") as file:
            try:
                file.write(data)
                file.flush()
            except BaseException:  # an interrupt, too
                os.unlink(path)
                raise
    except FileExistsError:
        condition = "must not exist: nothing is overwritten"
        raise InputError("output", os.fspath(path), condition) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        condition = f"must be a file that can be written: {reason}"
        raise InputError("output", os.fspath(path), condition) from None
