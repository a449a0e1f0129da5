"""Outputs of releases for tests: a folder, a bucket in memory, and two services of buckets."""

import contextlib
import functools
import itertools
import os
import pathlib
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from interruptions import BUCKET_STEPS, STORE_STEPS
from jobs import everything_under
from memory_bucket import MemoryBucket

from beam_dp.storage.open import store_for
from beam_dp.storage.store import LocalStore


@dataclass
class Place:
    """An output for releases.

    Args:
        owner: the class whose methods are the steps of writing.
        steps: names of the methods that change or read shared state.
        new: switches to an empty folder.
        url: returns the URL of the folder.
        names: returns the names in the folder.
        put: writes a file of the folder past the store, or deletes it (None).
        before_publication: calls a function just before any step that could publish this file.
        service: the service of buckets, if the place is one.
    """

    owner: type
    steps: Sequence[str]
    new: Callable[[], None]
    url: Callable[[], str]
    names: Callable[[], list[str]]
    put: Callable[[str, bytes | None], None]
    before_publication: Callable[[str, Callable[[], None]], contextlib.AbstractContextManager[None]]
    service: Any = None


def draft_in(url: str, draw_id: str = "0" * 32) -> str:
    """Leaves a draft in a folder, like a killed writer; returns its name."""
    store = store_for(url, "output")
    draft = store.open_draft(draw_id)
    store.write_draft(draft, "records-000.avro", b"private")
    return draft


@contextlib.contextmanager
def local_place(folder: pathlib.Path) -> Iterator[Place]:
    numbers = itertools.count()
    current = folder / "first"

    def new() -> None:
        nonlocal current
        current = folder / str(next(numbers))

    def put(name: str, data: bytes | None) -> None:
        path = current / name
        path.unlink(missing_ok=True)
        if data is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    @contextlib.contextmanager
    def before_publication(name: str, act: Callable[[], None]) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for step in ("link", "rename", "replace", "symlink"):

                def published(source: Any, target: Any, *, step: Any, **options: Any) -> None:
                    if pathlib.Path(target) == current / name:
                        act()
                    step(source, target, **options)

                patch.setattr(f"os.{step}", functools.partial(published, step=getattr(os, step)))
            yield

    new()
    names = lambda: everything_under(current)  # noqa: E731
    yield Place(LocalStore, STORE_STEPS, new, lambda: str(current), names, put, before_publication)


@contextlib.contextmanager
def memory_place(patch: pytest.MonkeyPatch) -> Iterator[Place]:
    bucket = MemoryBucket("releases")
    patch.setattr("beam_dp.storage.google.GoogleBucket", lambda name: bucket)

    def put(name: str, data: bytes | None) -> None:
        bucket.delete(f"out/{name}")
        if data is not None:
            bucket.write(f"out/{name}", data)

    @contextlib.contextmanager
    def before_publication(name: str, act: Callable[[], None]) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for step in ("copy", "copy_exclusively"):

                def published(*names: str, step: Any) -> Any:
                    if names[-1] == f"out/{name}":
                        act()
                    return step(*names)

                patch.setattr(
                    bucket, step, functools.partial(published, step=getattr(bucket, step))
                )
            yield

    names = lambda: [name.removeprefix("out/") for name in bucket.objects]  # noqa: E731
    url = lambda: "gs://releases/out"  # noqa: E731
    yield Place(
        MemoryBucket, BUCKET_STEPS, bucket.objects.clear, url, names, put, before_publication
    )


@contextlib.contextmanager
def service_place(scheme: str, patch: pytest.MonkeyPatch) -> Iterator[Place]:
    import fake_amazon_storage
    import fake_google_storage

    from beam_dp.storage.amazon import AmazonBucket
    from beam_dp.storage.google import GoogleBucket

    fake, owner = {
        "gs": (fake_google_storage, GoogleBucket),
        "s3": (fake_amazon_storage, AmazonBucket),
    }[scheme]
    folder = "out/visits/"
    with fake.serving(patch) as service:
        objects = service.buckets["releases"].objects

        def put(name: str, data: bytes | None) -> None:
            objects.pop(folder + name, None)
            if data is not None:
                service.put(folder + name, data)

        @contextlib.contextmanager
        def before_publication(name: str, act: Callable[[], None]) -> Iterator[None]:
            def before(method: str, path: str) -> None:
                if method in ("PUT", "POST") and urllib.parse.unquote(path).endswith(folder + name):
                    act()

            service.before = before
            yield
            service.before = lambda method, path: None

        yield Place(
            owner,
            BUCKET_STEPS,
            objects.clear,
            lambda: f"{scheme}://releases/{folder.rstrip('/')}",
            lambda: [name.removeprefix(folder) for name in service.names()],
            put,
            before_publication,
            service,
        )


def place_of(
    name: str, folder: pathlib.Path, patch: pytest.MonkeyPatch
) -> contextlib.AbstractContextManager[Place]:
    """An empty output: ``local``, ``memory``, ``gs`` or ``s3``."""
    if name == "local":
        return local_place(folder)
    return memory_place(patch) if name == "memory" else service_place(name, patch)


@pytest.fixture(params=["local", "memory"])
def place(request, tmp_path, monkeypatch) -> Iterator[Place]:
    with place_of(request.param, tmp_path, monkeypatch) as found:
        yield found
