"""Releases in services of buckets: whatever happens, one draw remains, or nothing.

What all stores keep is in ``contracts/test_stores``.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fake_storage import Answer, skip_waits
from places import Place, place_of
from release_examples import release_of, same_release

from beam_dp.errors import InputError
from beam_dp.releases.files.card import ReleaseError
from beam_dp.releases.files.commit import check_output
from beam_dp.releases.kinds import commit_release, read_release, write_release
from beam_dp.releases.leftovers import finish_writing

pytestmark = pytest.mark.job
OURS = release_of()
OTHERS = release_of(seed=1, draw_id="f" * 32)


@pytest.fixture(params=["gs", "s3"])
def cloud(request, tmp_path, monkeypatch) -> Iterator[Place]:
    with place_of(request.param, tmp_path, monkeypatch) as place:
        yield place


def assert_holds(cloud: Place, release: Any) -> None:
    """The folder contains exactly one whole release."""
    assert same_release(read_release(cloud.url()), release)
    assert len(cloud.names()) == 3


def test_ignores_objects_outside_the_folder(cloud):
    for name in ("out/visits", "out/visits2/card.json", "out/card.json", "out/visits/"):
        cloud.service.put(name, b"mine")
    check_output(cloud.url())
    write_release(OURS, cloud.url())
    assert {"out/visits", "out/visits2/card.json", "out/card.json"} < set(cloud.service.names())
    assert same_release(read_release(cloud.url()), OURS)


def test_missing_bucket_gives_a_one_line_error(cloud):
    url = cloud.url().replace("releases", "absent")
    for act in (check_output, lambda url: commit_release(OURS, url)):
        with pytest.raises(InputError, match=r"output: .*/visits' is not valid: must be .*no such"):
            act(url)
    with pytest.raises(ReleaseError, match=r"release: .* is not valid: card.json cannot be read"):
        read_release(url)


def crash_in_child(cloud: Place, release: Any, step: str, *, after: bool) -> int | None:
    """Commits in a process that dies at its first call of a step; returns its exit code."""

    def child() -> None:
        original = getattr(cloud.owner, step)

        def dying(*args: Any) -> None:
            if after:
                original(*args)
            os._exit(9)

        setattr(cloud.owner, step, dying)
        commit_release(release, cloud.url())
        os._exit(0)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    return process.exitcode


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
    assert commit_release(OTHERS, cloud.url()) is not is_committed
    assert_holds(cloud, OURS if is_committed else OTHERS)


def test_exactly_one_of_several_racing_draws_is_published(cloud):
    """One order only; ``test_orders_of_steps`` covers all of them."""
    won = []
    barrier = threading.Barrier(2)

    def attempt(release: Any) -> None:
        barrier.wait()
        won.append((release.draw_id, commit_release(release, cloud.url())))

    threads = [threading.Thread(target=attempt, args=(r,)) for r in (OURS, OTHERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 2
    (winner,) = {draw_id for draw_id, is_winner in won if is_winner}
    assert all(is_winner == (draw_id == winner) for draw_id, is_winner in won)
    assert_holds(cloud, OURS if winner == OURS.draw_id else OTHERS)


def test_commit_succeeds_if_responses_to_requests_are_lost(cloud, monkeypatch):
    """The library repeats requests that already succeeded; its waits are skipped here."""
    skip_waits(monkeypatch)
    for are_lost in ([1, 0, 0], [0, 1, 0], [0, 0, 1]):
        cloud.new()
        losses = itertools.cycle(are_lost)
        cloud.service.loses = lambda method, path, losses=losses: bool(next(losses))
        assert commit_release(OURS, cloud.url()) is True
        cloud.service.loses = lambda method, path: False
        assert_holds(cloud, OURS)
    assert len(cloud.service.requests) > 60


@pytest.mark.parametrize("status", [pytest.param(403, marks=pytest.mark.part), 507])
def test_failed_write_is_reported_in_one_line_and_leaves_nothing_after_cleanup(cloud, status):
    for at in range(4):
        count = 0

        def full(method: str, path: str, at: int = at) -> None:
            nonlocal count
            count += method in ("PUT", "POST")
            if count > at and method in ("PUT", "POST"):
                raise Answer(status)

        cloud.service.before = full
        with pytest.raises(InputError, match=r"output: .*must be .*written: .*") as caught:
            commit_release(OURS, cloud.url())
        assert str(status) in str(caught.value) and "\n" not in str(caught.value)
        cloud.service.before = lambda method, path: None
        finish_writing(cloud.url())
        assert cloud.names() == []
