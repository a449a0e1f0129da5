"""A writer that dies at any call of its bucket: any later attempt finds one draw whole, or none.

All calls are tried on a bucket in memory, some on the real clients in ``test_bucket_store``.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from memory_bucket import MemoryBucket
from release_examples import release_of, same_release

from beam_dp.releases import commit_release, finish_writing, read_release
from beam_dp.storage import of_url

URL = "gs://releases/out"
OURS = release_of()
OTHERS = release_of(seed=1, draw_id="f" * 32)


class DiedError(BaseException):
    """No handler of the writer catches this."""


class DyingBucket:
    """A bucket whose user dies before or after a call; no call after that does anything."""

    def __init__(self, bucket: MemoryBucket, crash_at: int, *, after: bool) -> None:
        self.bucket = bucket
        self.calls = 0
        self.crash_at = crash_at
        self.after = after

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            self.calls += 1
            if self.calls < self.crash_at:
                return getattr(self.bucket, name)(*args)
            if self.calls == self.crash_at and self.after:
                getattr(self.bucket, name)(*args)
            raise DiedError

        return call


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("repair", ["same draw", "other draw", "clean-up"])
def test_a_crash_at_any_call_is_repaired(
    monkeypatch: pytest.MonkeyPatch, repair: str, after: bool
) -> None:
    has_died, winners = True, set()
    for crash_at in itertools.count(1):
        bucket = MemoryBucket("releases")
        dying = DyingBucket(bucket, crash_at, after=after)
        monkeypatch.setattr(of_url, "GoogleBucket", lambda name, dying=dying: dying)
        try:
            assert commit_release(OURS, URL)
            has_died = False
        except DiedError:
            pass
        monkeypatch.setattr(of_url, "GoogleBucket", lambda name, bucket=bucket: bucket)
        was_committed = "out/card.json" in bucket.objects
        winner = OURS if was_committed else None
        if repair == "clean-up":
            assert finish_writing(URL) is was_committed
        elif repair == "same draw":
            assert commit_release(OURS, URL)
            winner = OURS
        else:
            assert commit_release(OTHERS, URL) is not was_committed
            winner = winner or OTHERS
        if winner is None:
            assert bucket.objects == {}
        else:
            assert same_release(read_release(URL), winner)
            assert len(bucket.objects) == 3
        winners.add(winner and winner.draw_id)
        if not has_died:
            break
    assert crash_at > 15
    assert len(winners) == (1 if repair == "same draw" else 2)


def test_a_card_whose_copy_was_reported_as_refused_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a bucket may say when the answer to its first request was lost."""

    class Forgetful(MemoryBucket):
        def copy_exclusively(self, source: str, version: str, target: str) -> bool:
            super().copy_exclusively(source, version, target)
            return False

    bucket = Forgetful("releases")
    monkeypatch.setattr(of_url, "GoogleBucket", lambda name: bucket)
    assert commit_release(OURS, URL) is True
    assert same_release(read_release(URL), OURS)
    assert len(bucket.objects) == 3
