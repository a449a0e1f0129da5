"""A writer and a cleanup, or two writers, concurrently: hundreds of orders of their steps."""

from __future__ import annotations

import pytest
from interruptions import orders, stepping
from places import Place
from release_examples import GUARANTEE, release_of, same_release
from tiny import domain_of
from written_draws import commit_in_parts

from beam_dp.errors import InputError
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.kinds import commit_release, read_release
from beam_dp.releases.leftovers import finish_writing
from beam_dp.releases.synthetic_database import shards

# A release with one file, as there are many orders; crashes and races are tested with two.
OURS, OTHERS = (
    AnswersRelease(draw_id=letter * 32, guarantee=GUARANTEE, rows=[], stated={}) for letter in "af"
)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch) -> None:
    """Only a loss of power would tell the difference."""
    monkeypatch.setattr("os.fsync", lambda _: None)


def holds(place: Place, draw: AnswersRelease) -> None:
    """Asserts that the folder contains exactly one whole draw."""
    assert read_release(place.url()).draw_id == draw.draw_id
    assert len(place.names()) == 2


# How often both are stopped together; two stops are tried within three.
@pytest.mark.parametrize("num_stops", [2, pytest.param(3, marks=pytest.mark.part)])
def test_writer_and_cleanup_leave_a_whole_release_or_nothing_in_any_order(
    place, monkeypatch, num_stops
):
    """Leaves a whole release or nothing; a card without its payload would block later jobs."""
    stepping(monkeypatch, place.owner, place.steps)
    outcomes = set()
    for written, cleaned in orders(
        lambda: commit_release(OURS, place.url()),
        lambda: finish_writing(place.url()),
        place.new,
        num_stops=num_stops,
    ):
        assert cleaned in (True, False)
        if finish_writing(place.url()):  # removes a draft that the writer opened too late, too
            holds(place, OURS)
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
        lambda: commit_release(OURS, place.url()),
        lambda: commit_release(OTHERS, place.url()),
        place.new,
        num_stops=num_stops,
    ):
        assert sorted([ours, others]) == [False, True]
        holds(place, OURS if ours else OTHERS)
        winners.add(ours)
    assert winners == {True, False}


@pytest.mark.part
def test_files_written_in_parts_and_cleanup_leave_a_whole_release_or_nothing(place, monkeypatch):
    """A card is published only with all its files in the draft that the cleanup may withdraw."""
    monkeypatch.setattr(shards, "SHARD_BYTES", 30)
    release = release_of(domain_of(40))
    assert release.num_shards == 2
    stepping(monkeypatch, place.owner, place.steps)
    outcomes = set()
    for written, cleaned in orders(
        lambda: commit_in_parts(release, place.url()),
        lambda: finish_writing(place.url()),
        place.new,
        num_stops=2,
    ):
        assert cleaned in (True, False)
        if finish_writing(place.url()):
            assert same_release(read_release(place.url()), release)
            assert len(place.names()) == 5
        else:
            assert place.names() == []
            assert isinstance(written, InputError) and "can be written" in str(written)
        outcomes.add((written is True, cleaned))
    assert outcomes == {(True, True), (True, False), (False, False)}
