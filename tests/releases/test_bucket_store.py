"""Releases in buckets: after crashes, delays and lost responses one draw remains, or nothing.

The services are fakes on the loopback interface; the client libraries are the real ones.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import threading
from collections.abc import Iterator
from typing import Any

import fake_amazon_storage
import fake_google_storage
import pytest
from fake_storage import skip_waits
from release_examples import release_of, same_release

from beam_dp.errors import InputError
from beam_dp.releases.answers.files import write_batch
from beam_dp.releases.files.card import ReleaseError
from beam_dp.releases.files.commit import check_output
from beam_dp.releases.kinds import commit_release, read_release, write_release
from beam_dp.releases.leftovers import finish_writing
from beam_dp.storage.amazon import AmazonBucket
from beam_dp.storage.bucket import BucketStore
from beam_dp.storage.google import GoogleBucket

SERVICES = {"gs": (fake_google_storage, GoogleBucket), "s3": (fake_amazon_storage, AmazonBucket)}
OURS = release_of()
OTHERS = release_of(seed=1, draw_id="f" * 32)


class Cloud:
    """A fake service, and its output folder."""

    def __init__(self, scheme: str, service: Any, bucket: type) -> None:
        self.scheme = scheme
        self.service = service
        self.bucket = bucket
        self.url = f"{scheme}://releases/out/visits"

    def names(self) -> list[str]:
        """The names in the folder."""
        return [name.removeprefix("out/visits/") for name in self.service.names()]

    def holds(self, release: Any) -> None:
        """Asserts that the folder contains exactly one whole release."""
        assert same_release(read_release(self.url), release)
        draw_id = release.draw_id
        files = [f"hypothesis-{draw_id}.avro", f"records-{draw_id}-00000-of-00001.avro"]
        assert self.names() == ["card.json", *files]

    def clear(self) -> None:
        """Deletes everything, bypassing the API."""
        self.service.buckets["releases"].objects.clear()


@pytest.fixture(params=SERVICES)
def cloud(request, monkeypatch) -> Iterator[Cloud]:
    module, bucket = SERVICES[request.param]
    with module.serving(monkeypatch) as service:
        yield Cloud(request.param, service, bucket)


@pytest.mark.mostly_slow(one_in=4, start=2)
@pytest.mark.parametrize("num_records", [0, 1, 1000])
def test_release_round_trips_through_bucket(cloud, num_records):
    release = release_of(num_records=num_records)
    check_output(cloud.url)
    write_release(release, cloud.url)
    cloud.holds(release)
    write_release(release, f"{cloud.url}/")  # the same draw again changes nothing
    cloud.holds(release)


@pytest.mark.mostly_slow(one_in=2)
def test_never_overwrites_a_release_of_another_draw(cloud):
    write_release(OURS, cloud.url)
    for act in (check_output, lambda url: write_release(OTHERS, url)):
        with pytest.raises(InputError, match=r"output: .* is not valid: must be a directory"):
            act(cloud.url)
    assert commit_release(OTHERS, cloud.url) is False
    cloud.holds(OURS)


@pytest.mark.parametrize("name", ["notes.txt", "card.json", "deep/er/notes.txt"])
def test_folder_with_other_content_is_rejected_and_kept(cloud, name):
    cloud.service.put(f"out/visits/{name}", b"{}")
    with pytest.raises(InputError, match="must be a directory that does not exist yet"):
        check_output(cloud.url)
    assert cloud.names() == [name]


@pytest.mark.mostly_slow(one_in=2)
def test_ignores_objects_outside_the_folder(cloud):
    for name in ("out/visits", "out/visits2/card.json", "out/card.json", "out/visits/"):
        cloud.service.put(name, b"mine")
    check_output(cloud.url)
    write_release(OURS, cloud.url)
    assert {"out/visits", "out/visits2/card.json", "out/card.json"} < set(cloud.service.names())
    assert same_release(read_release(cloud.url), OURS)


@pytest.mark.parametrize("folder", ["", "/", "/a//b", "/a/../b", "/.", "/a\nb", "/" + "a" * 900])
def test_rejects_url_that_does_not_name_a_folder(cloud, folder):
    for act in (check_output, read_release, finish_writing):
        with pytest.raises(InputError, match=f"must be {cloud.scheme}://BUCKET/FOLDER") as caught:
            act(f"{cloud.scheme}://releases{folder}")
        assert "\n" not in str(caught.value)


@pytest.mark.mostly_slow(one_in=2)
def test_missing_bucket_gives_a_one_line_error(cloud):
    url = f"{cloud.scheme}://absent/out"
    with pytest.raises(InputError, match=r"output: .*absent/out' is not valid: must be .*no such"):
        check_output(url)
    with pytest.raises(InputError, match=r"output: .*absent/out' is not valid: must be .*no such"):
        commit_release(OURS, url)
    with pytest.raises(ReleaseError, match=r"release: .* is not valid: card.json cannot be read"):
        read_release(url)


@pytest.mark.mostly_slow(one_in=2)
def test_folder_without_a_release_is_not_a_release(cloud):
    with pytest.raises(ReleaseError, match="must be a directory with a release"):
        read_release(cloud.url)
    cloud.service.put("out/visits/notes.txt", b"mine")
    with pytest.raises(ReleaseError, match=r"card\.json cannot be read: no such"):
        read_release(cloud.url)


def _change(data: bytes) -> bytes:
    return data[:-20] + bytes([data[-20] ^ 1]) + data[-19:]


@pytest.mark.mostly_slow(one_in=4, start=2)
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:10], "does not have the size on its card"),
        (_change, "does not have the checksum of its card"),
        (lambda data: None, "cannot be read: no such"),
    ],
)
def test_rejects_damaged_payload(cloud, damage, message):
    write_release(OURS, cloud.url)
    objects = cloud.service.buckets["releases"].objects
    (name,) = [name for name in objects if "records" in name]
    data = damage(objects.pop(name)[0])
    if data is not None:
        cloud.service.put(name, data)
    with pytest.raises(ReleaseError, match=message):
        read_release(cloud.url)


def test_writes_each_batch_of_a_stream_once(cloud):
    rows: list[dict[str, Any]] = []
    assert write_batch(rows, "a" * 32, 7, cloud.url) is True
    assert write_batch(rows, "a" * 32, 7, cloud.url) is False
    assert cloud.names() == [f"answers-{'a' * 32}-00000007.avro"]


def crash_in_child(cloud: Cloud, release: Any, step: str, *, after: bool) -> int | None:
    """Commits in a process that dies at its first call of a step; returns its exit code."""

    def child() -> None:
        original = getattr(cloud.bucket, step)

        def dying(*args: Any) -> None:
            if after:
                original(*args)
            os._exit(9)

        setattr(cloud.bucket, step, dying)
        commit_release(release, cloud.url)
        os._exit(0)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    return process.exitcode


@pytest.mark.mostly_slow(one_in=4, start=2)
@pytest.mark.parametrize(
    ("step", "after", "is_committed"),
    [
        ("replace", True, False),  # the card is in its draft
        ("copy_exclusively", True, True),  # the card is published, its files are not
        ("copy", True, True),  # a file is in its place and in its draft
    ],
)
def test_next_draw_repairs_a_crash(cloud, step, after, is_committed):
    """Three of the steps; ``test_crashes`` covers all of them."""
    assert crash_in_child(cloud, OURS, step, after=after) == 9
    assert ("card.json" in cloud.names()) is is_committed
    assert commit_release(OTHERS, cloud.url) is not is_committed
    cloud.holds(OURS if is_committed else OTHERS)


@pytest.mark.slow
def test_exactly_one_of_several_racing_draws_is_published(cloud):
    """One order only; ``test_orders_of_steps`` covers all of them."""
    won = []
    barrier = threading.Barrier(2)

    def attempt(release: Any) -> None:
        barrier.wait()
        won.append((release.draw_id, commit_release(release, cloud.url)))

    threads = [threading.Thread(target=attempt, args=(r,)) for r in (OURS, OTHERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 2
    (winner,) = {draw_id for draw_id, is_winner in won if is_winner}
    assert all(is_winner == (draw_id == winner) for draw_id, is_winner in won)
    cloud.holds(OURS if winner == OURS.draw_id else OTHERS)


@pytest.mark.slow
def test_commit_succeeds_if_responses_to_requests_are_lost(cloud, monkeypatch):
    """The library repeats requests that already succeeded; its waits are skipped here."""
    skip_waits(monkeypatch)
    for are_lost in ([1, 0, 0], [0, 1, 0], [0, 0, 1]):
        cloud.clear()
        losses = itertools.cycle(are_lost)
        cloud.service.loses = lambda method, path, losses=losses: bool(next(losses))
        assert commit_release(OURS, cloud.url) is True
        cloud.service.loses = lambda method, path: False
        cloud.holds(OURS)
    assert len(cloud.service.requests) > 60


@pytest.mark.mostly_slow(one_in=3, start=1)
@pytest.mark.parametrize("status", [403, 507])
def test_failed_write_is_reported_in_one_line_and_leaves_nothing_after_cleanup(cloud, status):
    module = SERVICES[cloud.scheme][0]
    for at in range(4):
        count = 0

        def full(method: str, path: str, at: int = at) -> None:
            nonlocal count
            count += method in ("PUT", "POST")
            if count > at and method in ("PUT", "POST"):
                raise module.Answer(status)

        cloud.service.before = full
        with pytest.raises(InputError, match=r"output: .*must be .*written: .*") as caught:
            commit_release(OURS, cloud.url)
        assert str(status) in str(caught.value) and "\n" not in str(caught.value)
        cloud.service.before = lambda method, path: None
        finish_writing(cloud.url)
        assert cloud.names() == []


@pytest.mark.mostly_slow(one_in=2)
def test_no_drafted_content_remains_readable(cloud):
    """Everything in a draft is deleted, however many pages its names take."""
    store = BucketStore(cloud.bucket("releases"), cloud.url, "output")
    draft = store.open_draft("0" * 32)
    for number in range(7):
        store.write_draft(draft, f"{number}.avro", b"private")
    assert len(cloud.names()) == 8
    assert write_release(OURS, cloud.url) is None
    cloud.holds(OURS)
    assert json.loads(cloud.service.buckets["releases"].objects["out/visits/card.json"][0])
