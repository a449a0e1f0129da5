"""Local stores: what killed writers leave, how `beam-dp finish` handles it, and probes."""

import errno
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import stat
from collections.abc import Callable
from typing import Any

import pytest
from interruptions import KilledError
from jobs import everything_under, refused_line
from release_examples import DRAW, release_of

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.releases.files.commit import (
    check_output,
    complete_committed,
    holds_card,
    probe_output,
)
from beam_dp.releases.kinds import commit_release, finish_writing, read_release, write_release
from beam_dp.storage.store import LocalStore


@pytest.mark.parametrize("card", ["", "[]", "{}", '{"files": 7}', '{"files": {"../x": {}}}'])
def test_damaged_card_is_kept_and_its_draft_is_removed(tmp_path, card):
    (tmp_path / "card.json").write_text(card)
    (tmp_path / ".draft-x").mkdir()
    assert finish_writing(tmp_path) is False
    assert everything_under(tmp_path) == ["card.json"]


@pytest.mark.parametrize("read", [complete_committed, holds_card])
def test_refuses_a_folder_whose_card_cannot_be_read(tmp_path, monkeypatch, read):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(dp.InputError, match=r"output: .*/file/out' .* does not exist yet"):
        read(tmp_path / "file" / "out")

    def fails(*_: Any) -> Any:
        raise PermissionError(errno.EACCES, "no credentials")

    monkeypatch.setattr(LocalStore, "read", fails)
    with pytest.raises(dp.InputError, match=r"output: .* can be written: no credentials"):
        read(tmp_path)


def test_does_not_move_a_file_outside_the_directory(tmp_path):
    data = b"mine"
    entry = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    out = tmp_path / "out"
    (out / ".draft-x").mkdir(parents=True)
    (out / "notes").write_bytes(data)
    (out / "card.json").write_text(json.dumps({"files": {"../notes": entry}}))
    assert finish_writing(out) is False
    assert everything_under(tmp_path) == ["out", "out/card.json", "out/notes"]


def draft_in(folder: pathlib.Path) -> pathlib.Path:
    """A draft of another draw by a killed writer."""
    store = LocalStore(folder)
    draft = store.open_draft("0" * 32)
    store.write_draft(draft, "card.json", b"{}")
    return folder / draft


@pytest.mark.parametrize("is_committed", [False, True])
def test_finish_reports_drafts_that_it_cannot_remove(tmp_path, capfd, monkeypatch, is_committed):
    if is_committed:
        assert commit_release(release_of(), tmp_path)
    draft_in(tmp_path)
    monkeypatch.setattr(LocalStore, "remove_draft", lambda self, draft: None)
    line = refused_line(main, ["finish", str(tmp_path)], capfd)
    assert line.startswith(f"error: output: '{tmp_path}' still contains private drafts")


def test_finish_reports_a_failing_filesystem_in_one_line(tmp_path, capfd, monkeypatch):
    def broken(self: LocalStore, draft: str) -> str:
        raise PermissionError(13, "Permission denied", str(tmp_path / draft))

    draft_in(tmp_path)
    monkeypatch.setattr(LocalStore, "withdraw", broken)
    line = refused_line(main, ["finish", str(tmp_path)], capfd)
    assert line.startswith(f"error: output: '{tmp_path}' may contain drafts, .draft-*")
    assert line.endswith("Permission denied\n")


@pytest.fixture
def unfinished(tmp_path) -> pathlib.Path:
    """A release that is committed, and whose writer was killed before it placed the files."""

    def killed(*_: Any) -> None:
        raise KilledError

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(LocalStore, "place", killed)
        patch.setattr(LocalStore, "remove_draft", lambda self, draft: None)
        commit_release(release_of(), tmp_path / "a b")
    return tmp_path / "a b"


@pytest.mark.parametrize(
    "command", [["describe"], ["describe", "--json"], ["answer", "--marginal", "hours"]]
)
def test_error_for_an_unfinished_release_names_finish(unfinished, capfd, command):
    with pytest.raises(dp.InputError, match="`beam-dp finish "):
        check_output(unfinished)
    name, *more = command
    line = refused_line(main, [name, str(unfinished), *more], capfd, "No such file")
    found = re.search("`beam-dp (finish .*?)`", line)
    assert found and main(shlex.split(found[1])) == 0
    assert read_release(unfinished).draw_id == release_of().draw_id


def test_error_for_a_draft_without_a_card_names_finish(tmp_path):
    LocalStore(tmp_path).open_draft("0" * 32)
    with pytest.raises(dp.ReleaseError, match=r"it has no card\.json; .* `beam-dp finish "):
        read_release(tmp_path)


def test_errors_without_a_draft_do_not_mention_finish(tmp_path):
    """The command would not help: the missing file is lost."""
    assert commit_release(release_of(), tmp_path)
    next(tmp_path.glob("records-*")).unlink()
    for act, name in ((read_release, "release"), (check_output, "output")):
        with pytest.raises(dp.InputError, match=rf"^{name}: ") as caught:
            act(tmp_path)
        assert "finish" not in str(caught.value)
    with pytest.raises(dp.InputError) as caught:
        read_release(tmp_path / "card.json")
    assert "finish" not in str(caught.value)


OTHER_DRAW = "f" * 32
OURS = release_of()
OTHERS = release_of(seed=1, draw_id=OTHER_DRAW)


def names_in(directory):
    return sorted(path.name for path in directory.iterdir())


def payload(draw_id):
    return [f"hypothesis-{draw_id}.avro", f"records-{draw_id}-00000-of-00001.avro"]


def test_rejects_unwritable_parent_directory(tmp_path, monkeypatch):
    if os.geteuid() == 0:  # root may write anywhere, so the system's answer is replaced
        monkeypatch.setattr(os, "access", lambda path, mode: False)
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(dp.InputError, match="must be in a directory"):
        check_output(tmp_path / "closed" / "out")
    assert names_in(tmp_path / "closed") == []


def test_drafts_are_private_but_the_output_is_not(tmp_path, monkeypatch):
    modes = []
    original = LocalStore.create_exclusively

    def spy(self, draft, name):
        modes.append(stat.S_IMODE((tmp_path / draft).stat().st_mode))
        assert draft.startswith(f".draft-{DRAW}-")
        return original(self, draft, name)

    monkeypatch.setattr(LocalStore, "create_exclusively", spy)
    write_release(OURS, tmp_path)
    assert modes == [0o700]


def test_committed_release_without_its_payload_is_always_an_error(tmp_path):
    write_release(OURS, tmp_path)
    (tmp_path / payload(DRAW)[0]).unlink()
    for release in (OURS, OTHERS):
        with pytest.raises(dp.ReleaseError, match=r"hypothesis-.*\.avro is missing or damaged"):
            commit_release(release, tmp_path)
    assert names_in(tmp_path) == ["card.json", payload(DRAW)[1]]


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
        dp.InputError, match=rf"^output: '.*{output}' is not valid: .*{reason}"
    ) as error:
        probe_output(tmp_path / output)
    assert "\n" not in str(error.value)
    assert everything_under(tmp_path) == before


def test_rejects_folder_where_files_cannot_be_removed(tmp_path, monkeypatch):
    """Drafts are private, and could not be removed."""
    monkeypatch.setattr("beam_dp.storage.store.shutil.rmtree", closed)
    with pytest.raises(dp.InputError, match=r"^output: .*Permission denied"):
        probe_output(tmp_path / "out")
