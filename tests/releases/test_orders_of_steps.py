"""Writers and cleanups in any order of their steps, and writers that die: one draw or none."""

import dataclasses
import errno
import functools
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from interruptions import KilledError, orders, stepping
from memory_bucket import MemoryBucket
from places import Place, draft_in
from release_examples import GUARANTEE, release_of, same_release
from tiny import domain_of
from written_draws import commit_in_parts

from beam_dp.errors import InputError
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.files.commit import check_output, probe_output
from beam_dp.releases.kinds import commit_release, finish_writing, read_release, write_release
from beam_dp.releases.synthetic_database import shards
from beam_dp.storage.open import store_for

# A release with one file, as there are many orders; crashes and races are tested with two.
ANSWERS, OTHER_ANSWERS = (
    AnswersRelease(draw_id=letter * 32, guarantee=GUARANTEE, rows=[], stated={}) for letter in "af"
)
DOMAIN = domain_of(40)
OURS = release_of(DOMAIN)
OTHERS = release_of(DOMAIN, seed=1, draw_id="f" * 32)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch) -> None:
    """Only a loss of power would tell the difference."""
    monkeypatch.setattr("os.fsync", lambda _: None)


def holds(place: Place, draw: AnswersRelease) -> None:
    """Asserts that the folder contains exactly one whole draw."""
    assert read_release(place.url()).draw_id == draw.draw_id
    assert len(place.names()) == 2


# How often both are stopped together; two stops are tried within three.
@pytest.mark.parametrize(
    ("release", "num_stops"),
    [
        (ANSWERS, 2),
        *(pytest.param(*each, marks=pytest.mark.part) for each in ((ANSWERS, 3), (OURS, 2))),
    ],
    ids=["one file", "one file, three stops", "files in parts"],
)
def test_writer_and_cleanup_leave_a_whole_release_or_nothing_in_any_order(
    place, monkeypatch, release, num_stops
):
    """A card without its payload would block later jobs; it is published with all its files."""
    monkeypatch.setattr(shards, "SHARD_BYTES", 30)
    commit, num_files = (commit_in_parts, 5) if release is OURS else (commit_release, 2)
    assert release is ANSWERS or OURS.num_shards == 2
    stepping(monkeypatch, place.owner, place.steps)
    outcomes = set()
    for written, cleaned in orders(
        lambda: commit(release, place.url()),
        lambda: finish_writing(place.url()),
        place.new,
        num_stops=num_stops,
    ):
        assert cleaned in (True, False)
        if finish_writing(place.url()):  # removes a draft that the writer opened too late, too
            found = read_release(place.url())
            assert found.draw_id == release.draw_id and len(place.names()) == num_files
            assert release is ANSWERS or same_release(found, release)
        else:
            assert place.names() == []
            assert isinstance(written, InputError) and "can be written" in str(written)
        outcomes.add((written is True, cleaned))
    assert outcomes == {(True, True), (True, False), (False, False)}


@pytest.mark.parametrize("num_stops", [2, pytest.param(3, marks=pytest.mark.part)])
def test_exactly_one_of_two_draws_is_published_in_any_order(place, monkeypatch, num_stops):
    stepping(monkeypatch, place.owner, place.steps)
    winners = set()
    for ours, others in orders(
        lambda: commit_release(ANSWERS, place.url()),
        lambda: commit_release(OTHER_ANSWERS, place.url()),
        place.new,
        num_stops=num_stops,
    ):
        assert sorted([ours, others]) == [False, True]
        holds(place, ANSWERS if ours else OTHER_ANSWERS)
        winners.add(ours)
    assert winners == {True, False}


@pytest.fixture(params=[1, 2], ids=["one file of records", "two files of records"])
def num_files(request, monkeypatch) -> int:
    """The number of files; several files of rows come with one of their distinct records."""
    if request.param == 2:
        monkeypatch.setattr(shards, "SHARD_BYTES", 30)
    assert OURS.num_shards == request.param
    return {1: 3, 2: 5}[request.param]


Commit = Callable[[Any, str], bool]
FAILURE = OSError(errno.EIO, "the disk is worn out")


def dies(place: Place, crash_at: int, *, after: bool, commit: Commit = commit_release) -> bool:
    """Commits, and dies before or after a step; returns whether it reached that step."""
    try:
        return spoilt(place, crash_at, KilledError(), after=after, for_good=True, commit=commit)
    except KilledError:
        return True


def spoilt(
    place: Place,
    crash_at: int,
    error: BaseException,
    *,
    after: bool,
    for_good: bool,
    commit: Commit = commit_release,
) -> bool:
    """Commits, with an error before or after a step, and in all later steps if ``for_good``.

    Returns whether the writer reached that step, if the error did not stop it.
    """
    calls = 0
    with pytest.MonkeyPatch.context() as patch:
        for name in place.steps:
            original = getattr(place.owner, name)

            def step(*args: Any, original: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls < crash_at or (calls > crash_at and not for_good):
                    return original(*args)
                if calls == crash_at and after:
                    calls += 1  # steps inside this one are not tried
                    original(*args)
                raise error

            patch.setattr(place.owner, name, functools.partialmethod(step, original=original))
        assert commit(OURS, place.url())
    return calls >= crash_at


# A death before a step finds what a death after the step before it finds.
@pytest.mark.parametrize(
    "after",
    [pytest.param(False, marks=pytest.mark.part, id="before"), pytest.param(True, id="after")],
)
@pytest.mark.parametrize("repair", ["same draw", "other draw", "clean-up"])
def test_repairs_a_crash_at_any_step(place, repair, after, num_files):
    winners = set()
    for crash_at in itertools.count(1):
        place.new()
        # Several files of records are written in parts.
        commit = commit_release if OURS.num_shards == 1 else commit_in_parts
        has_died = dies(place, crash_at, after=after, commit=commit)
        was_committed = "card.json" in place.names()
        winner = OURS if was_committed else None
        if repair == "clean-up":
            for _ in range(2):  # finishing what is finished changes nothing
                assert finish_writing(place.url()) is was_committed
        elif repair == "same draw":
            assert commit_release(OURS, place.url())
            winner = OURS
        else:
            assert commit_release(OTHERS, place.url()) is not was_committed
            winner = winner or OTHERS
        if winner is None:
            assert place.names() == []
        else:
            assert same_release(read_release(place.url()), winner)
            assert len(place.names()) == num_files
        winners.add(winner and winner.draw_id)
        if not has_died:
            break
    assert crash_at > 9
    assert len(winners) == (1 if repair == "same draw" else 2)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_whole_release_or_nothing_remains_after_a_step_fails_once(place, after, num_files):
    """For example, the disk is full: unlike a killed writer, this writer cleans up."""
    num_left = num_stopped = 0
    for fail_at in itertools.count(1):
        place.new()
        try:
            has_failed = spoilt(place, fail_at, FAILURE, after=after, for_good=False)
        except (InputError, OSError) as stopped:
            has_failed = True
            num_stopped += 1
            if "card.json" not in place.names():
                assert "output: " in str(stopped) and FAILURE.strerror in str(stopped)
                assert all(name.startswith(".draft-") for name in place.names())
                num_left += bool(place.names())
                assert commit_release(OTHERS, place.url())
        finish_writing(place.url())
        assert len(place.names()) == num_files
        found = read_release(place.url())
        assert same_release(found, OURS) or same_release(found, OTHERS)
        if not has_failed:
            break
    assert num_stopped > 8
    assert num_left <= after  # a draft that nobody was told of


def test_rejects_draft_whose_content_differs_from_the_draw(place, monkeypatch):
    kind = type(store_for(place.url(), "output"))
    original = kind.write_draft

    def damages(*args: Any) -> Any:
        return dataclasses.replace(original(*args), sha256="0" * 64)

    monkeypatch.setattr(kind, "write_draft", damages)
    with pytest.raises(InputError, match=r"output: .* the file does not contain what was written"):
        commit_release(OURS, place.url())
    assert place.names() == []


@pytest.mark.parametrize("check", [check_output, probe_output])
def test_drafts_of_another_job_are_rejected_until_withdrawn(place, check):
    assert dies(place, 3, after=True)
    before = place.names()
    assert before and all(name.startswith(".draft-") for name in before)
    with pytest.raises(InputError) as error:
        check(place.url())
    assert str(error.value) == (
        f"output: '{place.url()}' is not valid: must not contain drafts of another job: stop that"
        f" job if it is running, then run `beam-dp finish {place.url()}`, which withdraws its"
        " drafts"
    )
    assert place.names() == before
    assert finish_writing(place.url()) is False and place.names() == []
    check(place.url())


@pytest.mark.parametrize("release", [OURS, OTHERS], ids=["same draw", "other draw"])
@pytest.mark.parametrize("write", [commit_release, write_release])
def test_retried_writer_ignores_drafts_of_killed_writers(place, write, release):
    """Drafts may be from the same job or from a simultaneous job: the first complete draft wins."""
    assert dies(place, 3, after=True)
    write(release, place.url())
    assert same_release(read_release(place.url()), release)
    assert len(place.names()) == 3


def test_drafts_that_contain_no_draw_do_not_block_a_job(place):
    """Jobs that start simultaneously probe the same folder, and may begin the same horizon."""
    for draw_id in ("trial", "horizon-" + "0" * 32):
        draft_in(place.url(), draw_id)
    check_output(place.url())
    probe_output(place.url())


def test_commit_succeeds_if_a_completed_copy_is_reported_as_failed(monkeypatch):
    """A bucket may report a failure if the response to its first request was lost."""

    class Forgetful(MemoryBucket):
        def copy_exclusively(self, source: str, version: str, target: str) -> bool:
            super().copy_exclusively(source, version, target)
            return False

    bucket = Forgetful("releases")
    monkeypatch.setattr("beam_dp.storage.google.GoogleBucket", lambda name: bucket)
    assert commit_release(OURS, "gs://releases/out") is True
    assert same_release(read_release("gs://releases/out"), OURS)
    assert len(bucket.objects) == 3
