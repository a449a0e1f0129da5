"""`beam-dp finish`: completes what a job had committed, removes drafts, and says which it was."""

from __future__ import annotations

import pathlib
import re

import pytest
from jobs import everything_under
from release_examples import release_of

from beam_dp.cli.main import main
from beam_dp.releases.kinds import commit_release, read_release
from beam_dp.storage.local import LocalStore


class KilledError(BaseException):
    """No handler of the writer catches this; none of its clean-up runs."""


def killed(*_: object) -> None:
    raise KilledError


def draft_in(folder: pathlib.Path) -> pathlib.Path:
    """A draft of another draw, whose writer was killed."""
    store = LocalStore(folder)
    draft = store.open_draft("0" * 32)
    store.write_draft(draft, "card.json", b"{}")
    return folder / draft


def finish(capfd: pytest.CaptureFixture[str], folder: pathlib.Path, code: int = 0) -> str:
    """Demands an exit code and one line."""
    assert main(["finish", str(folder)]) == code
    out, err = capfd.readouterr()
    line, nothing = (err, out) if code else (out, err)
    assert nothing == "" and re.fullmatch(r"[^\n]+\n", line)
    return line.strip()


def test_what_was_committed_is_completed(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "place", killed)
        patch.setattr(LocalStore, "remove_draft", lambda self, draft: None)
        with pytest.raises(KilledError):
            commit_release(release_of(), tmp_path)
    draft_in(tmp_path)
    expected = f"{tmp_path}: the release is complete; drafts removed"
    assert finish(capfd, tmp_path) == f"{expected}: 2"
    assert read_release(tmp_path).draw_id == release_of().draw_id
    assert len(everything_under(tmp_path)) == 3
    assert finish(capfd, tmp_path) == f"{expected}: 0"


def test_drafts_without_a_release_are_withdrawn(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    draft_in(tmp_path)
    assert finish(capfd, tmp_path) == f"{tmp_path}: no release was committed; drafts withdrawn: 1"
    assert everything_under(tmp_path) == []


def test_a_release_that_lost_a_file_is_an_error(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert commit_release(release_of(), tmp_path)
    next(tmp_path.glob("records-*")).unlink()
    draft_in(tmp_path)
    line = finish(capfd, tmp_path, 2)
    assert line == (
        f"error: release: '{tmp_path}' is refused; card.json names no files of a release,"
        " or some that are missing or damaged; drafts removed: 1"
    )
    assert len(everything_under(tmp_path)) == 2


def test_a_name_of_nothing_is_refused(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    line = finish(capfd, tmp_path / "outt", 2)
    assert line.startswith(f"error: output: '{tmp_path}/outt' is refused; must be a directory")
    assert finish(capfd, pathlib.Path("ftp://host/out"), 2).startswith("error: output: ")
    assert everything_under(tmp_path) == []


@pytest.mark.parametrize("is_committed", [False, True])
def test_drafts_that_stay_are_an_error(
    tmp_path: pathlib.Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_committed: bool,
) -> None:
    if is_committed:
        assert commit_release(release_of(), tmp_path)
    draft_in(tmp_path)
    monkeypatch.setattr(LocalStore, "remove_draft", lambda self, draft: None)
    line = finish(capfd, tmp_path, 2)
    assert line.startswith(f"error: output: '{tmp_path}' is refused; still holds drafts, ")
    assert "which are private" in line


def test_a_filesystem_that_fails_is_one_line(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: LocalStore, draft: str) -> str:
        raise PermissionError(13, "Permission denied", str(tmp_path / draft))

    draft_in(tmp_path)
    monkeypatch.setattr(LocalStore, "withdraw", broken)
    line = finish(capfd, tmp_path, 2)
    assert line.startswith(f"error: output: '{tmp_path}' is refused; may hold drafts, .draft-*")
    assert line.endswith("Permission denied")
