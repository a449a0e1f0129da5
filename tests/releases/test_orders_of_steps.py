"""A writer and a clean-up, or two writers, at once: in hundreds of orders of their steps."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from interruptions import BUCKET_STEPS, STORE_STEPS, orders, stepping
from jobs import everything_under
from memory_bucket import MemoryBucket
from release_examples import release_of, same_release

from beam_dp.errors import InputError
from beam_dp.releases import commit_release, finish_writing, read_release, stores
from beam_dp.releases.filesystem import LocalStore

OURS = release_of(num_records=3)
OTHERS = release_of(num_records=3, seed=1, draw_id="f" * 32)


@dataclass
class Place:
    """Where releases are written; a new one each time."""

    new: Callable[[], None]
    url: Callable[[], str]
    names: Callable[[], list[str]]

    def holds(self, release: Any) -> None:
        """Asserts that one release is there, whole, and nothing else."""
        assert same_release(read_release(self.url()), release)
        assert len(self.names()) == 3

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
    for written, cleaned, _ in orders(
        lambda: commit_release(OURS, place.url()), lambda: finish_writing(place.url()), place.new
    ):
        if finish_writing(place.url()):  # what the writer left when it found its draft withdrawn
            place.holds(OURS)
        else:
            place.is_empty()
            assert isinstance(written, InputError) and "can be written" in str(written)
            assert cleaned is False
        outcomes.add((written is True, cleaned is True))
    assert len(outcomes) >= 3, outcomes


def test_the_clean_up_of_a_job_and_its_writer(place: Place) -> None:
    outcomes = set()
    for cleaned, written, was_late in orders(
        lambda: finish_writing(place.url()), lambda: commit_release(OURS, place.url()), place.new
    ):
        assert cleaned in (True, False)
        if finish_writing(place.url()):
            place.holds(OURS)
        else:
            place.is_empty()
            assert isinstance(written, InputError) and was_late
        outcomes.add((cleaned, written is True))
    assert len(outcomes) >= 2, outcomes


def test_two_draws(place: Place) -> None:
    winners = set()
    for ours, others, _ in orders(
        lambda: commit_release(OURS, place.url()),
        lambda: commit_release(OTHERS, place.url()),
        place.new,
    ):
        assert sorted([ours, others]) == [False, True]
        place.holds(OURS if ours else OTHERS)
        winners.add(ours)
    assert winners == {True, False}
