"""Outputs for the tests in this folder: a filesystem and an object store."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest
from interruptions import BUCKET_STEPS, STORE_STEPS
from jobs import everything_under
from memory_bucket import MemoryBucket

from beam_dp.storage.store import LocalStore, store_for


@dataclass
class Place:
    """An output for releases.

    Args:
        owner: the class whose methods are the steps of writing.
        steps: names of the methods that change or read shared state.
        new: switches to an empty folder.
        url: returns the URL of the folder.
        names: returns the names in the folder.
    """

    owner: type
    steps: Sequence[str]
    new: Callable[[], None]
    url: Callable[[], str]
    names: Callable[[], list[str]]


def draft_in(url: str, draw_id: str = "0" * 32) -> str:
    """Leaves a draft in a folder, like a killed writer; returns its name."""
    store = store_for(url, "output")
    draft = store.open_draft(draw_id)
    store.write_draft(draft, "records-000.avro", b"private")
    return draft


@pytest.fixture(params=["local", "bucket"])
def place(request, tmp_path, monkeypatch) -> Iterator[Place]:
    if request.param == "local":
        numbers, folder = itertools.count(), tmp_path

        def new_folder() -> None:
            nonlocal folder
            folder = tmp_path / str(next(numbers))

        new_folder()
        names = lambda: everything_under(folder)  # noqa: E731
        yield Place(LocalStore, STORE_STEPS, new_folder, lambda: str(folder), names)
    else:
        bucket = MemoryBucket("releases")
        monkeypatch.setattr("beam_dp.storage.google.GoogleBucket", lambda name: bucket)
        url = "gs://releases/out"
        names = lambda: [name.removeprefix("out/") for name in bucket.objects]  # noqa: E731
        yield Place(MemoryBucket, BUCKET_STEPS, bucket.objects.clear, lambda: url, names)
