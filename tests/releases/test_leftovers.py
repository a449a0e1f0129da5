"""Leftovers of killed writers, how `beam-dp finish` handles them, and errors that name it."""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
import shlex
from collections.abc import Sequence
from typing import Any

import pytest
from interruptions import KilledError
from jobs import everything_under, interval_flags, job_flags
from release_examples import GUARANTEE, release_of

from beam_dp.cli.main import main
from beam_dp.errors import InputError
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.files.card import ReleaseError
from beam_dp.releases.files.commit import check_output
from beam_dp.releases.kinds import commit_release, read_release
from beam_dp.releases.leftovers import finish_writing
from beam_dp.releases.release import Release
from beam_dp.storage.store import LocalStore
from pipelines import release_intervals, release_synthetic_database


def killed_at(patch: pytest.MonkeyPatch, method: str, *, after: bool) -> None:
    """Kills writers before or after a step, and keeps their drafts."""
    original = getattr(LocalStore, method)

    def killed(*arguments: Any) -> Any:
        if after:
            original(*arguments)
        patch.setattr(LocalStore, "remove_draft", lambda self, draft: None)
        raise KilledError

    patch.setattr(LocalStore, method, killed)


def commit_and_kill(
    folder: pathlib.Path, method: str, release: Release | None = None, *, after: bool = False
) -> pathlib.Path:
    """Commits a release to a directory with a writer that is killed at a step."""
    with pytest.MonkeyPatch.context() as patch:
        killed_at(patch, method, after=after)
        with pytest.raises(KilledError):
            commit_release(release or release_of(), folder)
    return folder


def test_removes_a_draft_of_another_draw(tmp_path):
    release = release_of()
    assert commit_release(release, tmp_path)
    before = everything_under(tmp_path)
    store = LocalStore(tmp_path)
    store.write_draft(store.open_draft("0" * 32), "card.json", b"{}")
    assert finish_writing(tmp_path)
    assert everything_under(tmp_path) == before


@pytest.mark.parametrize("card", ["", "[]", "{}", '{"files": 7}', '{"files": {"../x": {}}}'])
def test_damaged_card_is_kept_and_its_draft_is_removed(tmp_path, card):
    (tmp_path / "card.json").write_text(card)
    (tmp_path / ".draft-x").mkdir()
    assert finish_writing(tmp_path) is False
    assert everything_under(tmp_path) == ["card.json"]


def test_finishing_a_missing_directory_creates_nothing(tmp_path):
    assert finish_writing(tmp_path / "out") is False
    assert not (tmp_path / "out").exists()


def test_places_a_draft_whose_card_is_published_concurrently(tmp_path, monkeypatch):
    """The writer died after writing its card, which the cleanup did not see when it began."""
    commit_and_kill(tmp_path, "create_exclusively")
    (draft,) = LocalStore(tmp_path).drafts()
    original = LocalStore.withdraw

    def late(self: LocalStore, name: str) -> str:
        self.create_exclusively(draft, "card.json")
        return original(self, name)

    monkeypatch.setattr(LocalStore, "withdraw", late)
    assert finish_writing(tmp_path)
    assert read_release(tmp_path).draw_id == release_of().draw_id
    assert len(everything_under(tmp_path)) == 3


def test_does_not_move_a_file_outside_the_directory(tmp_path):
    data = b"mine"
    entry = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    out = tmp_path / "out"
    (out / ".draft-x").mkdir(parents=True)
    (out / "notes").write_bytes(data)
    (out / "card.json").write_text(json.dumps({"files": {"../notes": entry}}))
    assert finish_writing(out) is False
    assert everything_under(tmp_path) == ["out", "out/card.json", "out/notes"]


def test_finishing_reports_a_missing_payload(tmp_path):
    assert commit_release(release_of(), tmp_path)
    for path in tmp_path.glob("records-*"):
        path.unlink()
    assert finish_writing(tmp_path) is False


@pytest.mark.parametrize("repair", [finish_writing, lambda out: commit_release(release_of(), out)])
def test_does_not_place_a_partial_draft(tmp_path, monkeypatch, repair):
    """Another attempt at the same draw was killed in the middle of a file of the same name."""
    commit_and_kill(tmp_path, "create_exclusively", after=True)
    (whole,) = tmp_path.glob(".draft-*")
    for name in ("!", "~"):  # before and behind it in a listing
        part = tmp_path / f".draft-{name}"
        part.mkdir()
        for path in whole.iterdir():
            (part / path.name).write_bytes(path.read_bytes()[:-1])
    placed, place = [], LocalStore.place

    def spy(self: LocalStore, draft: str, name: str) -> None:
        placed.append(draft)
        place(self, draft, name)

    monkeypatch.setattr(LocalStore, "place", spy)
    assert repair(tmp_path)
    assert set(placed) == {whole.name}  # not even for a moment
    assert read_release(tmp_path).draw_id == release_of().draw_id
    assert len(everything_under(tmp_path)) == 3


def draft_in(folder: pathlib.Path) -> pathlib.Path:
    """A draft of another draw by a killed writer."""
    store = LocalStore(folder)
    draft = store.open_draft("0" * 32)
    store.write_draft(draft, "card.json", b"{}")
    return folder / draft


def finish(capfd: pytest.CaptureFixture[str], folder: pathlib.Path, code: int = 0) -> str:
    """Checks the exit code, and that the error is one line."""
    assert main(["finish", str(folder)]) == code
    out, err = capfd.readouterr()
    line, nothing = (err, out) if code else (out, err)
    assert nothing == "" and re.fullmatch(r"[^\n]+\n", line)
    return line.strip()


def test_finish_completes_a_committed_release(tmp_path, capfd):
    commit_and_kill(tmp_path, "place")
    draft_in(tmp_path)
    expected = f"{tmp_path}: the release is complete; drafts removed"
    assert finish(capfd, tmp_path) == f"{expected}: 2"
    assert read_release(tmp_path).draw_id == release_of().draw_id
    assert len(everything_under(tmp_path)) == 3
    assert finish(capfd, tmp_path) == f"{expected}: 0"


def test_finish_withdraws_drafts_without_a_release(tmp_path, capfd):
    draft_in(tmp_path)
    assert finish(capfd, tmp_path) == f"{tmp_path}: no release was committed; drafts withdrawn: 1"
    assert everything_under(tmp_path) == []


def test_finish_reports_a_lost_file(tmp_path, capfd):
    assert commit_release(release_of(), tmp_path)
    next(tmp_path.glob("records-*")).unlink()
    draft_in(tmp_path)
    line = finish(capfd, tmp_path, 2)
    assert line == (
        f"error: release: '{tmp_path}' is not valid: card.json names no files of a release,"
        " or some that are missing or damaged; drafts removed: 1"
    )
    assert len(everything_under(tmp_path)) == 2


def test_finish_rejects_a_missing_directory(tmp_path, capfd):
    line = finish(capfd, tmp_path / "outt", 2)
    assert line.startswith(f"error: output: '{tmp_path}/outt' is not valid: must be a directory")
    assert finish(capfd, pathlib.Path("ftp://host/out"), 2).startswith("error: output: ")
    assert everything_under(tmp_path) == []


@pytest.mark.parametrize("is_committed", [False, True])
def test_finish_reports_drafts_that_it_cannot_remove(tmp_path, capfd, monkeypatch, is_committed):
    if is_committed:
        assert commit_release(release_of(), tmp_path)
    draft_in(tmp_path)
    monkeypatch.setattr(LocalStore, "remove_draft", lambda self, draft: None)
    line = finish(capfd, tmp_path, 2)
    assert line.startswith(f"error: output: '{tmp_path}' still contains private drafts")


def test_finish_reports_a_failing_filesystem_in_one_line(tmp_path, capfd, monkeypatch):
    def broken(self: LocalStore, draft: str) -> str:
        raise PermissionError(13, "Permission denied", str(tmp_path / draft))

    draft_in(tmp_path)
    monkeypatch.setattr(LocalStore, "withdraw", broken)
    line = finish(capfd, tmp_path, 2)
    assert line.startswith(f"error: output: '{tmp_path}' may contain drafts, .draft-*")
    assert line.endswith("Permission denied")


ANSWERS = AnswersRelease(draw_id="a" * 32, guarantee=GUARANTEE, rows=[], stated={})


@pytest.fixture
def unfinished(tmp_path) -> pathlib.Path:
    return commit_and_kill(tmp_path / "a b", "place")


def named_command(line: str) -> Sequence[str]:
    """The arguments of the `beam-dp` command named in a line."""
    found = re.search("`beam-dp (finish .*?)`", line)
    assert found, line
    return shlex.split(found[1])


@pytest.mark.parametrize(
    "command", [["describe"], ["describe", "--json"], ["answer", "--marginal", "hours"]]
)
def test_error_for_an_unfinished_release_names_finish(unfinished, capfd, command):
    name, *more = command
    assert main([name, str(unfinished), *more]) == 2
    out, line = capfd.readouterr()
    assert out == "" and line.count("\n") == 1
    assert "No such file" in line
    assert main(named_command(line)) == 0
    assert read_release(unfinished).draw_id == release_of().draw_id


def test_error_for_unfinished_answers_names_finish(tmp_path, capfd):
    commit_and_kill(tmp_path, "place", ANSWERS)
    assert main(["describe", str(tmp_path)]) == 2
    assert main(named_command(capfd.readouterr().err)) == 0
    assert read_release(tmp_path).draw_id == ANSWERS.draw_id


@pytest.mark.job
def test_error_of_a_restarted_job_names_the_finish_command(tmp_path, capfd):
    commit_and_kill(tmp_path / "out", "place")
    for program, argv in (
        (release_synthetic_database.main, job_flags(tmp_path)),
        (release_intervals.main, [*interval_flags(tmp_path), "--validate_only"]),
    ):
        assert program(argv) == 2
        line = capfd.readouterr().err
        assert re.fullmatch(r"error: --output: [^\n]+\n", line)
        assert named_command(line) == ["finish", str(tmp_path / "out")]


def test_error_for_a_draft_without_a_card_names_finish(tmp_path):
    LocalStore(tmp_path).open_draft("0" * 32)
    with pytest.raises(ReleaseError, match=r"card\.json cannot be read: .* `beam-dp finish "):
        read_release(tmp_path)


def test_errors_without_a_draft_do_not_mention_finish(tmp_path):
    """The command would not help: the missing file is lost."""
    assert commit_release(release_of(), tmp_path)
    next(tmp_path.glob("records-*")).unlink()
    for act, name in ((read_release, "release"), (check_output, "output")):
        with pytest.raises(InputError, match=rf"^{name}: ") as caught:
            act(tmp_path)
        assert "finish" not in str(caught.value)
    with pytest.raises(InputError) as caught:
        read_release(tmp_path / "card.json")
    assert "finish" not in str(caught.value)
