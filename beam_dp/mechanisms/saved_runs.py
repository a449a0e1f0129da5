"""What the folders of saved online runs share: a secret that is bound to public files, used once.

Two runs from one state would each spend the budget.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from beam_dp.errors import InputError

_SECRET = "secret.json"


def new_folder(folder: str | Path) -> Path:
    """Makes a folder that only its owner may read.

    Raises:
        InputError: if it exists.
    """
    path = Path(folder)
    try:
        path.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise InputError("folder", str(path), "must not exist") from None
    return path


def write_secret(path: Path, state: Mapping[str, int], public: Iterable[str]) -> None:
    """Writes a secret state, bound to the public files beside it, which are complete."""
    secret = {**state, "public_sha256": digest(path, public)}
    descriptor = os.open(path / _SECRET, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(secret, file)


def take_secret(path: Path, public_digest: str) -> dict[str, Any]:
    """Reads and removes the secret; of several that try, one succeeds.

    Args:
        path: the folder.
        public_digest: of the public files as they were read.

    Raises:
        InputError: if there is none, or it was written for other public files.
    """
    taken = path / f"{_SECRET}.taken"
    try:
        os.rename(path / _SECRET, taken)
        text = taken.read_text(encoding="utf-8")
        os.unlink(taken)
        secret = json.loads(text)
    except (OSError, ValueError):
        condition = "must hold a secret that was not used: a saved run is resumed once"
        raise InputError("folder", str(path), condition) from None
    if not isinstance(secret, dict) or secret.pop("public_sha256", None) != public_digest:
        raise InputError("folder", str(path), "must hold an undamaged run")
    return secret


def digest(path: Path, public: Iterable[str]) -> str:
    """Returns what binds the secret to the public files."""
    found = hashlib.sha256()
    for name in public:
        found.update(hashlib.sha256((path / name).read_bytes()).digest())
    return found.hexdigest()
