"""A writer and a clean-up, or two writers, at once: in hundreds of orders of their steps."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from interruptions import BUCKET_STEPS, STORE_STEPS, orders, stepping
from jobs import everything_under
from memory_bucket import MemoryBucket
from release_examples import GUARANTEE

from beam_dp.errors import InputError
from beam_dp.releases import AnswersRelease, commit_release, finish_writing, read_release
from beam_dp.storage import of_url as stores
from beam_dp.storage.local import LocalStore

# Of one file, for there are many orders; crashes and races are tested with two.
OURS, OTHERS = (
    AnswersRelease(draw_id=letter * 32, guarantee=GUARANTEE, rows=[], card={}) for letter in "af"
)


@dataclass
class Place:
    """Where releases are written; a new one each time."""

    new: Callable[[], None]
    url: Callable[[], str]
    names: Callable[[], list[str]]

    def holds(self, draw: AnswersRelease) -> None:
        """Asserts that one draw is there, whole, and nothing else."""
        assert read_release(self.url()).draw_id == draw.draw_id
        assert len(self.names()) == 2

    def is_empty(self) -> None:
        """Asserts that nothing is there."""
        assert self.names() == []


@pytest.fixture(params=["local", "bucket"])
def place(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    if request.param == "local":
        stepping(monkeypatch, LocalStore, STORE_STEPS)
        numbers, folder = itertools.count(), tmp_path

        def new_folder() -> None:
            nonlocal folder
            folder = tmp_path / str(next(numbers))

        yield Place(new_folder, lambda: str(folder), lambda: everything_under(folder))
    else:
        stepping(monkeypatch, MemoryBucket, BUCKET_STEPS)
        bucket = MemoryBucket("releases")
        monkeypatch.setattr(stores, "GoogleBucket", lambda name: bucket)
        yield Place(bucket.objects.clear, lambda: "gs://releases/out", lambda: [*bucket.objects])


def test_a_writer_and_the_clean_up_of_its_job(place: Place) -> None:
    """There is a release whole or none; never a card without its payload, which would block."""
    outcomes = set()
    for written, cleaned in orders(
        lambda: commit_release(OURS, place.url()),
        lambda: finish_writing(place.url()),
        place.new,
        num_stops=3,
    ):
        assert cleaned in (True, False)
        if finish_writing(place.url()):  # removes a draft that the writer opened too late, too
            place.holds(OURS)
        else:
            place.is_empty()
            assert isinstance(written, InputError) and "can be written" in str(written)
        outcomes.add((written is True, cleaned))
    assert outcomes == {(True, True), (True, False), (False, False)}


def test_two_draws(place: Place) -> None:
    winners = set()
    for ours, others in orders(
        lambda: commit_release(OURS, place.url()),
        lambda: commit_release(OTHERS, place.url()),
        place.new,
        num_stops=3,
    ):
        assert sorted([ours, others]) == [False, True]
        place.holds(OURS if ours else OTHERS)
        winners.add(ours)
    assert winners == {True, False}
