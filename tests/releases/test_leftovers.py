"""Leftovers of killed writers, by the step of the commit at which they were killed."""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from jobs import everything_under
from release_examples import release_of

from beam_dp.releases.kinds import commit_release, read_release
from beam_dp.releases.leftovers import finish_writing
from beam_dp.storage.local import LocalStore


class KilledError(BaseException):
    """No handler of the writer catches this; none of its clean-up runs."""


def killed_at(patch: pytest.MonkeyPatch, method: str, *, after: bool) -> None:
    original = getattr(LocalStore, method)

    def killed(*arguments: Any) -> Any:
        if after:
            original(*arguments)
        patch.setattr(LocalStore, "remove_draft", lambda self, draft: None)
        raise KilledError

    patch.setattr(LocalStore, method, killed)


@pytest.mark.parametrize(
    ("method", "after", "is_complete"),
    [
        ("open_draft", True, False),
        ("write_draft", True, False),
        ("create_exclusively", False, False),
        ("create_exclusively", True, True),
        ("place", False, True),
        ("place", True, True),
    ],
)
def test_a_commit_is_completed_and_everything_else_removed(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    after: bool,
    is_complete: bool,
) -> None:
    release = release_of()
    with monkeypatch.context() as patch:
        killed_at(patch, method, after=after)
        with pytest.raises(KilledError):
            commit_release(release, tmp_path / "out")
    assert any(name.startswith(".draft-") for name in everything_under(tmp_path / "out"))
    assert finish_writing(tmp_path / "out") is is_complete
    if is_complete:
        assert read_release(tmp_path / "out").draw_id == release.draw_id
        assert len(everything_under(tmp_path / "out")) == 3
    else:
        assert everything_under(tmp_path / "out") == []
    assert finish_writing(tmp_path / "out") is is_complete  # again


def test_a_draft_of_another_draw_goes(tmp_path: pathlib.Path) -> None:
    release = release_of()
    assert commit_release(release, tmp_path)
    before = everything_under(tmp_path)
    store = LocalStore(tmp_path)
    store.write_draft(store.open_draft("0" * 32), "card.json", b"{}")
    assert finish_writing(tmp_path)
    assert everything_under(tmp_path) == before


@pytest.mark.parametrize("card", ["", "[]", "{}", '{"files": 7}', '{"files": {"../x": {}}}'])
def test_what_is_no_card_completes_nothing(tmp_path: pathlib.Path, card: str) -> None:
    (tmp_path / "card.json").write_text(card)
    (tmp_path / ".draft-x").mkdir()
    assert finish_writing(tmp_path) is False
    assert everything_under(tmp_path) == ["card.json"]


def test_nothing_is_no_release(tmp_path: pathlib.Path) -> None:
    assert finish_writing(tmp_path / "out") is False
    assert not (tmp_path / "out").exists()


def test_a_draft_that_is_withdrawn_while_its_card_is_published_is_placed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer died after its card, which the clean-up had not seen when it began."""
    with monkeypatch.context() as patch:
        killed_at(patch, "create_exclusively", after=False)
        with pytest.raises(KilledError):
            commit_release(release_of(), tmp_path)
    (draft,) = LocalStore(tmp_path).drafts()
    original = LocalStore.withdraw

    def late(self: LocalStore, name: str) -> str:
        self.create_exclusively(draft, "card.json")
        return original(self, name)

    monkeypatch.setattr(LocalStore, "withdraw", late)
    assert finish_writing(tmp_path)
    assert read_release(tmp_path).draw_id == release_of().draw_id
    assert len(everything_under(tmp_path)) == 3


def test_a_card_that_names_a_path_moves_nothing(tmp_path: pathlib.Path) -> None:
    data = b"mine"
    entry = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    out = tmp_path / "out"
    (out / ".draft-x").mkdir(parents=True)
    (out / "notes").write_bytes(data)
    (out / "card.json").write_text(json.dumps({"files": {"../notes": entry}}))
    assert finish_writing(out) is False
    assert everything_under(tmp_path) == ["out", "out/card.json", "out/notes"]


def test_a_release_that_lost_its_payload_is_not_complete(tmp_path: pathlib.Path) -> None:
    assert commit_release(release_of(), tmp_path)
    for path in tmp_path.glob("records-*"):
        path.unlink()
    assert finish_writing(tmp_path) is False


@pytest.mark.parametrize("repair", [finish_writing, lambda out: commit_release(release_of(), out)])
def test_a_draft_that_was_written_in_part_is_not_placed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, repair: Callable[[pathlib.Path], bool]
) -> None:
    """Another attempt at the same draw was killed in the middle of a file of the same name."""
    with monkeypatch.context() as patch:
        killed_at(patch, "create_exclusively", after=True)
        with pytest.raises(KilledError):
            commit_release(release_of(), tmp_path)
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
