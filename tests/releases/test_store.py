import multiprocessing
import os
import stat
import threading

import pytest
from release_examples import DRAW, release_of, same_release

from beam_dp.errors import InputError
from beam_dp.releases.files.card import ReleaseError
from beam_dp.releases.files.commit import check_output
from beam_dp.releases.kinds import commit_release, read_release, write_release
from beam_dp.storage import store as filesystem
from beam_dp.storage.store import LocalStore

OTHER_DRAW = "f" * 32
OURS = release_of()
OTHERS = release_of(seed=1, draw_id=OTHER_DRAW)


def names_in(directory):
    return sorted(path.name for path in directory.iterdir())


def payload(draw_id):
    return [f"hypothesis-{draw_id}.avro", f"records-{draw_id}-00000-of-00001.avro"]


def assert_holds(directory, release):
    assert names_in(directory) == ["card.json", *payload(release.draw_id)]
    assert same_release(read_release(directory), release)


def test_file_names_do_not_depend_on_the_number_of_records(tmp_path):
    for num_records in (0, 1000):
        write_release(release_of(num_records=num_records), tmp_path / str(num_records))
    assert names_in(tmp_path / "0") == names_in(tmp_path / "1000")


def test_repeating_the_same_draw_changes_nothing(tmp_path):
    assert commit_release(OURS, tmp_path) is True
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert commit_release(OURS, tmp_path) is True
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_file_or_foreign_directory_is_rejected_and_unchanged(tmp_path):
    (tmp_path / "file").write_text("something else")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    (tmp_path / "card").mkdir()
    (tmp_path / "card" / "card.json").write_text("{}")
    for name in ("file", "full", "card", "file/below"):
        for act in (check_output, lambda directory: write_release(OURS, directory)):
            with pytest.raises(InputError, match=r"output: .* is not valid: must be") as caught:
                act(tmp_path / name)
            assert "\n" not in str(caught.value)
    for name in ("file", "card", "file/below"):
        with pytest.raises(InputError, match=r"output: .* is not valid: must be"):
            commit_release(OURS, tmp_path / name)
    assert (tmp_path / "file").read_text() == "something else"
    assert names_in(tmp_path / "full") == ["notes.txt"]
    assert (tmp_path / "card" / "card.json").read_text() == "{}"


def test_rejects_unwritable_parent_directory(tmp_path, monkeypatch):
    if os.geteuid() == 0:  # root may write anywhere, so the system's answer is replaced
        monkeypatch.setattr(os, "access", lambda path, mode: False)
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(InputError, match="must be in a directory"):
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


def test_card_created_but_not_synced_keeps_its_payload(tmp_path, monkeypatch):
    """The call failed but the card exists: its draft is the release and must stay."""
    original, failed = filesystem.sync_directory, []

    def failing(path):
        if not failed:
            failed.append(True)
            raise OSError(5, "Input/output error")
        original(path)

    monkeypatch.setattr(filesystem, "sync_directory", failing)
    assert commit_release(OURS, tmp_path) and failed
    assert_holds(tmp_path, OURS)


def test_committed_release_without_its_payload_is_always_an_error(tmp_path):
    write_release(OURS, tmp_path)
    (tmp_path / payload(DRAW)[0]).unlink()
    for release in (OURS, OTHERS):
        with pytest.raises(ReleaseError, match=r"hypothesis-.*\.avro is missing or damaged"):
            commit_release(release, tmp_path)
    assert names_in(tmp_path) == ["card.json", payload(DRAW)[1]]


def test_exactly_one_of_several_racing_draws_is_published(tmp_path):
    won = []

    def attempt(release, barrier):
        barrier.wait()
        won.append((release.draw_id, commit_release(release, tmp_path / "out")))

    barrier = threading.Barrier(8)
    threads = [
        threading.Thread(target=attempt, args=(release, barrier)) for release in [OURS, OTHERS] * 4
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 8
    (winner,) = {draw_id for draw_id, is_winner in won if is_winner}
    assert all(is_winner == (draw_id == winner) for draw_id, is_winner in won)
    assert_holds(tmp_path / "out", OURS if winner == DRAW else OTHERS)


@pytest.mark.job
def test_exactly_one_of_several_racing_processes_publishes(tmp_path):
    context = multiprocessing.get_context("fork")
    for number in range(3):
        directory = tmp_path / str(number)
        barrier = context.Barrier(4)

        def attempt(release, directory=directory, barrier=barrier):
            barrier.wait()
            os._exit(10 if commit_release(release, directory) else 20)

        processes = [context.Process(target=attempt, args=(r,)) for r in [OURS, OTHERS] * 2]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        codes = [process.exitcode for process in processes]
        assert codes in ([10, 20, 10, 20], [20, 10, 20, 10])
        assert_holds(directory, OURS if codes[0] == 10 else OTHERS)


FILE = payload(DRAW)[1]
