"""What every store of releases keeps: a folder, and buckets of which two are services.

Services are fakes on the loopback interface; the client libraries are the real ones. What is true
of crashes and of all orders of steps is in ``releases/test_orders_of_steps``.
"""

import itertools
import json
import os
import pathlib
import stat
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from places import Place, place_of
from release_examples import release_of, same_release

import beam_dp as dp
from beam_dp.releases.answers.files import write_batch
from beam_dp.releases.files.commit import check_output, probe_output
from beam_dp.releases.kinds import commit_release, read_release, write_release
from beam_dp.storage.open import store_for

OURS = release_of()
OTHERS = release_of(seed=1, draw_id="f" * 32)


@pytest.fixture(
    params=[
        *("local", "memory"),
        *(pytest.param(each, marks=pytest.mark.job) for each in ("gs", "s3")),
    ]
)
def store(request, tmp_path, monkeypatch) -> Iterator[Place]:
    with place_of(request.param, tmp_path, monkeypatch) as place:
        yield place


def everything(store: Place) -> set[str]:
    """The files in the folder and in folders below it."""
    names = store.names()
    return {each for each in names if not any(name.startswith(f"{each}/") for name in names)}


def assert_holds(store: Place, release: Any) -> None:
    """The folder contains exactly one whole release."""
    assert same_release(read_release(store.url()), release)
    draw_id = release.draw_id
    files = [f"hypothesis-{draw_id}.avro", f"records-{draw_id}-00000-of-00001.avro"]
    assert sorted(store.names()) == ["card.json", *files]


def test_a_release_is_read_as_it_was_written(store):
    for num_records in (0, 1, 1000) if store.service is None else (50,):
        store.new()
        release = release_of(num_records=num_records)
        check_output(store.url())
        write_release(release, store.url())
        assert_holds(store, release)
        write_release(release, f"{store.url()}/")  # the same draw again changes nothing
        assert commit_release(release, store.url()) is True
        assert_holds(store, release)


def test_a_release_of_another_draw_is_never_overwritten(store):
    write_release(OURS, store.url())
    for act in (check_output, lambda url: write_release(OTHERS, url)):
        with pytest.raises(dp.InputError, match=r"output: .* is not valid: must be a directory"):
            act(store.url())
    assert commit_release(OTHERS, store.url()) is False
    assert_holds(store, OURS)


@pytest.mark.parametrize("name", ["notes.txt", "card.json", "deep/er/notes.txt"])
def test_folder_with_other_content_is_rejected_and_kept(store, name):
    store.put(name, b"{}")
    with pytest.raises(dp.InputError, match="must be a directory that does not exist yet"):
        check_output(store.url())
    assert everything(store) == {name}


def test_folder_without_a_release_is_not_a_release(store):
    with pytest.raises(dp.ReleaseError, match="is not a directory"):
        read_release(store.url())
    store.put("notes.txt", b"mine")
    with pytest.raises(dp.ReleaseError, match=r"is not a release: it has no card\.json"):
        read_release(store.url())


def test_damaged_payload_is_rejected(store):
    write_release(OURS, store.url())
    (name,) = [name for name in store.names() if "records" in name]
    data = store_for(store.url(), "release").read(name, num_bytes=None)
    for damaged, message in (
        (data[:10], "does not have the size on its card"),
        (data[:-20] + bytes([data[-20] ^ 1]) + data[-19:], "does not have the checksum of its"),
        (None, "cannot be read: [Nn]o such"),
    ):
        store.put(name, damaged)
        with pytest.raises(dp.ReleaseError, match=message):
            read_release(store.url())


def test_probing_leaves_nothing(store):
    before = everything(store)
    probe_output(store.url())
    assert everything(store) == before


def test_each_batch_of_a_stream_is_written_once(store):
    assert write_batch([], "a" * 32, 7, store.url()) is True
    assert write_batch([], "a" * 32, 7, store.url()) is False
    assert store.names() == [f"answers-{'a' * 32}-00000007.avro"]


def test_every_draft_is_deleted_with_all_that_it_holds(store):
    """However many pages its names take."""
    inside = store_for(store.url(), "output")
    draft = inside.open_draft("0" * 32)
    for number in range(7):
        inside.write_draft(draft, f"{number}.avro", b"private")
    assert len(store.names()) >= 7
    write_release(OURS, store.url())
    assert_holds(store, OURS)


def test_card_that_appears_between_check_and_publication_wins(store):
    """Another writer publishes at the last moment, just before each step that could publish."""
    rival = json.dumps({"draw": "of another writer"}).encode()
    arrivals = 0

    def arrive() -> None:
        nonlocal arrivals
        arrivals += 1
        store.put("card.json", rival)

    inside = store_for(store.url(), "output")
    draft = inside.open_draft(OURS.draw_id)
    with store.before_publication("card.json", arrive):
        assert inside.publish(draft, "card.json", b"ours") is False
    assert arrivals > 0
    assert inside.read("card.json") == rival


class Disk:
    """Notes what is published before the local disk was told to keep it, or what came before."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.published: set[str] = set()
        self.faults: list[str] = []
        self._synced: set[int] = set()
        self.waiting: set[str] = set()  # for the folder to be synced
        sync = os.fsync

        def fsync(descriptor: int) -> None:
            status = os.fstat(descriptor)
            self._synced.add(status.st_ino)
            if stat.S_ISDIR(status.st_mode):
                self.waiting.clear()
            sync(descriptor)

        patch.setattr("os.fsync", fsync)
        for name in ("link", "replace", "rename"):
            patch.setattr(f"os.{name}", self._watched(getattr(os, name)))

    def _watched(self, publish: Callable[..., None]) -> Callable[..., None]:
        def published(source: Any, target: Any, **options: Any) -> None:
            path = pathlib.Path(source)
            if path.is_file():
                is_synced = path.stat().st_ino in self._synced
                self.faults += [] if is_synced else [f"{path.name} is not on the disk"]
                self.faults += [f"the folder with {name} is not" for name in self.waiting]
                self.published.add(path.name)
                self.waiting.add(path.name)
            publish(source, target, **options)

        return published


def test_local_files_are_on_the_disk_before_they_are_published(tmp_path, monkeypatch):
    """A loss of power leaves no card whose files are empty, and no files without a card."""
    disk = Disk(monkeypatch)
    write_release(OURS, tmp_path)
    assert disk.published == {path.name for path in tmp_path.iterdir()}
    assert disk.faults == [] and not disk.waiting


def test_failed_sync_leaves_a_whole_release_or_nothing(tmp_path, monkeypatch):
    """Each one fails once: nothing is published whose content may be lost."""
    sync, num_stopped = os.fsync, 0
    for fail_at in itertools.count():
        calls = itertools.count()

        def fsync(descriptor: int, calls: Any = calls, fail_at: int = fail_at) -> None:
            if next(calls) == fail_at:
                raise OSError(28, "No space left on device")
            sync(descriptor)

        monkeypatch.setattr("os.fsync", fsync)
        folder = tmp_path / str(fail_at)
        try:
            assert commit_release(OURS, folder)
        except (dp.InputError, OSError) as error:
            assert "No space left on device" in str(error)
            num_stopped += 1
            is_published = (folder / "card.json").exists()
            assert is_published or (isinstance(error, dp.InputError) and not folder.exists())
            assert commit_release(OURS, folder)
        assert same_release(read_release(folder), OURS)
        if next(calls) <= fail_at:
            break
    assert num_stopped >= 3  # the card and two files
