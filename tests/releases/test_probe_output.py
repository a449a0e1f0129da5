"""A probe tests a filesystem before any budget is spent, and leaves nothing."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from jobs import everything_under

from beam_dp.errors import InputError
from beam_dp.releases.files.commit import probe_output
from beam_dp.storage.store import LocalStore


def no_links(*_: object, **__: object) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


def read_only(*_: object, **__: object) -> Any:
    raise OSError(errno.EROFS, "Read-only file system")


def overwriting(source: Any, target: Any, **_: object) -> None:
    shutil.copy(source, target)


def closed(path: Any, *_: object, **__: object) -> None:
    raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))


FAULTS: dict[str, tuple[str, Callable[..., Any], str]] = {
    "no hard links": ("os.link", no_links, "Operation not permitted"),
    "no folder can be made": ("tempfile.mkdtemp", read_only, "Read-only file system"),
    "no file can be made durable": ("os.fsync", read_only, "Read-only file system"),
    "a link replaces what is there": ("os.link", overwriting, "can replace an existing file"),
    "nothing can be moved": ("os.replace", closed, "Permission denied"),
}


@pytest.mark.parametrize("output", ["out", "not/yet/out", "there"])
def test_probing_a_folder_leaves_nothing(tmp_path, output):
    (tmp_path / "there").mkdir()
    before = everything_under(tmp_path)
    probe_output(tmp_path / output)
    assert everything_under(tmp_path) == before


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("output", ["out", "not/yet/out", "there"])
def test_folder_without_a_needed_feature_gives_a_one_line_error(
    tmp_path, monkeypatch, fault, output
):
    (tmp_path / "there").mkdir()
    before = everything_under(tmp_path)
    name, broken, reason = FAULTS[fault]
    monkeypatch.setattr(f"beam_dp.storage.store.{name}", broken)
    with pytest.raises(
        InputError, match=rf"^output: '.*{output}' is not valid: .*{reason}"
    ) as error:
        probe_output(tmp_path / output)
    assert "\n" not in str(error.value)
    assert everything_under(tmp_path) == before


def test_rejects_folder_where_files_cannot_be_removed(tmp_path, monkeypatch):
    """Drafts are private, and could not be removed."""
    monkeypatch.setattr("beam_dp.storage.store.shutil.rmtree", closed)
    with pytest.raises(InputError, match=r"^output: .*Permission denied"):
        probe_output(tmp_path / "out")


def test_rejects_file_or_nonempty_folder_as_output(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match=r"^output: .* must be"):
            probe_output(path)
    assert everything_under(tmp_path) == ["file"]


def test_probe_tries_every_step_of_a_commit(tmp_path, monkeypatch):
    called = set()
    for name in ("open_draft", "write_draft", "publish", "place", "fingerprint"):
        original = getattr(LocalStore, name)

        def spy(*args: Any, name: str = name, original: Any = original) -> Any:
            called.add(name)
            return original(*args)

        monkeypatch.setattr(LocalStore, name, spy)
    probe_output(tmp_path / "out")
    assert called == {"open_draft", "write_draft", "publish", "place", "fingerprint"}
