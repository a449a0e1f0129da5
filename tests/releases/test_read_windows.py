"""Directories of horizons, also with missing windows or damaged files."""

import dataclasses
import json
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from horizons import (
    DOMAIN,
    FIRST,
    WORKLOAD,
    card_of,
    commit_block,
    commit_window,
    leveled,
    released_horizon,
)
from interruptions import KilledError
from jobs import everything_under
from places import Place
from release_examples import release_of
from window_examples import GAUSSIAN, window_of
from window_plans import person, plan_of

import beam_dp as dp
from beam_dp.releases.kinds import commit_release, finish_writing
from beam_dp.releases.windows import horizon_files as horizon_files
from beam_dp.releases.windows.horizon_files import (
    Released,
    begin_horizon,
    read_horizon,
    released,
    window_directory,
)

PLAN = leveled()


def test_reads_the_windows_released_so_far(place):
    url = place.url()
    horizon_id = begin_horizon(url, card_of(PLAN), FIRST)
    first = commit_window(PLAN, url, 0, horizon_id)
    third = commit_window(PLAN, url, 2, horizon_id)
    week = dp.read_windows(url)
    assert (week.released, week.horizon_id, week.block) == ((0, 2), FIRST, 3)
    assert (week.guarantee, week.workload) == (PLAN.guarantee, WORKLOAD)
    found = week.answer(dp.Workload(DOMAIN, (("a1",),)), slice(2, 3))[0]
    assert np.array_equal(found.values, third.tables["a1",])
    with pytest.raises(dp.InputError, match="windows: 1 is not valid"):
        week.answer(WORKLOAD, slice(0, 3))
    second = commit_window(PLAN, url, 1, horizon_id)
    assert week.released == (0, 2)  # what was there when it was read
    sums = dp.read_windows(url).answer(WORKLOAD, slice(0, 2))
    expected = first.tables["a0",] + second.tables["a0",]
    assert sums[0].values == pytest.approx(expected)


def test_released_block_makes_sums_more_accurate(tmp_path):
    url = str(tmp_path)
    horizon_id = released_horizon(url, PLAN, range(6))
    before = dp.read_windows(url).answer(WORKLOAD, slice(0, 3))[0].standard_error
    block = commit_block(PLAN, url, 0, horizon_id)
    week = dp.read_windows(url)
    after = week.answer(WORKLOAD, slice(0, 3))[0].standard_error
    assert before is not None and after is not None and after < before
    assert dict(week.blocks)[0].draw_id == block.draw_id


def test_lists_released_numbers_without_reading_a_release(place):
    url = place.url()
    assert released(url, card_of(PLAN)) == Released((), (), 8)
    horizon_id = released_horizon(url, PLAN, (5, 0, 3), (1,))
    assert released(url, card_of(PLAN)) == Released((0, 3, 5), (1,), 4)
    for number in (1, 2, 4):
        commit_window(PLAN, url, number, horizon_id)
    commit_block(PLAN, url, 0, horizon_id)
    assert released(url, card_of(PLAN)) == Released((0, 1, 2, 3, 4, 5), (0, 1), 0)
    # With a plan without blocks, no block is missing.
    assert released(url, card_of(plan_of(6, person(2, 6), WORKLOAD))).num_missing == 0


def test_ignores_folders_that_are_not_windows(tmp_path):
    released_horizon(str(tmp_path), PLAN, (0,))
    source = tmp_path / "windows" / "000000"
    for name in (
        "000006",
        "7",
        "00000a",
        "\N{FULLWIDTH DIGIT ZERO}00001",
        "0000001",
        ".draft-1",
        "000000~",
    ):
        shutil.copytree(source, tmp_path / "windows" / name)
    (tmp_path / "windows" / "000002").mkdir()
    (tmp_path / "windows" / "000003").write_text("")
    (tmp_path / "windows" / "000004" / ".draft-x").mkdir(parents=True)
    (tmp_path / "windows" / "000004" / ".draft-x" / "card.json").write_text("{}")
    assert released(tmp_path, card_of(PLAN)).windows == (0,)


def test_window_is_read_lazily_and_cached(tmp_path, monkeypatch):
    released_horizon(str(tmp_path), PLAN, range(6))
    read: list[str] = []

    def spy(directory: str) -> Any:
        read.append(directory[-1])
        return dp.read_release(directory)

    monkeypatch.setattr(horizon_files, "read_release", spy)
    week = dp.read_windows(tmp_path)
    assert len(week.released) == 6 and repr(week) and read == []
    for _ in range(3):
        week.answer(WORKLOAD, slice(1, 3))
    assert read == ["1", "2"]


def test_names_the_damaged_window_and_still_reads_the_others(tmp_path):
    released_horizon(str(tmp_path), PLAN, range(3))
    (file,) = (tmp_path / "windows" / "000001").glob("tables-*")
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    week = dp.read_windows(tmp_path)
    week.answer(WORKLOAD, slice(2, 3))
    with pytest.raises(dp.ReleaseError, match=r"windows/000001' is not valid: tables-.* checksum"):
        week.answer(WORKLOAD, slice(0, 2))


def edit(path: pathlib.Path, **changed: Any) -> None:
    card = json.loads(path.read_text())
    path.write_text(json.dumps({**card, **changed}))


def test_rejects_another_kind_or_workload_in_place_of_a_window(tmp_path):
    released_horizon(str(tmp_path), PLAN, range(2))
    commit_release(release_of(), window_directory(tmp_path, 2))
    plan = plan_of(6, person(2, 6), dp.marginals(DOMAIN, ways=2))
    commit_window(plan, str(tmp_path), 3, FIRST)
    shutil.copytree(tmp_path / "windows" / "000000", tmp_path / "levels" / "3" / "000000")
    week = dp.read_windows(tmp_path)
    for number, condition in ((2, "must be window 2 of"), (3, "must have the promise and the wo")):
        with pytest.raises(dp.ReleaseError, match=rf"windows/00000{number}' .*{condition}"):
            week.answer(WORKLOAD, slice(number, number + 1))
    with pytest.raises(
        dp.ReleaseError, match=r"levels/3/000000' is not valid: must be block 0 of the"
    ):
        _ = week.blocks[0]
    with pytest.raises(KeyError):
        _ = week.windows[4]


def test_reads_synthetic_databases_of_windows(tmp_path):
    plan = dp.plan_window_databases(dp.MWEM(), WORKLOAD, PLAN.horizon, person(2, 3), 1.0, 1e-9)
    horizon_id = begin_horizon(tmp_path, card_of(plan), FIRST)
    release = commit_window(plan, str(tmp_path), 4, horizon_id)
    week = dp.read_windows(tmp_path)
    assert week.windows[4].draw_id == release.draw_id
    expected = release.answer(WORKLOAD)[0].values
    assert np.array_equal(week.answer(WORKLOAD, slice(4, 5))[0].values, expected)
    shutil.copytree(tmp_path / "windows" / "000004", tmp_path / "windows" / "000003")
    with pytest.raises(
        dp.ReleaseError, match=r"windows/000003' is not valid: must be window 3 of the"
    ):
        _ = dp.read_windows(tmp_path).windows[3]
    for plan_text in ({"window": 7}, {"window": {"guarantee": None}}, {}):
        edit(tmp_path / "horizon.json", plan=plan_text)
        with pytest.raises(dp.ReleaseError, match=r"windows/000004' .* must have the promise"):
            _ = dp.read_windows(tmp_path).windows[4]
    for parameters in ({"windows": 7}, {"windows": [[1]]}, {}):
        edit(tmp_path / "windows" / "000004" / "card.json", parameters=parameters)
        with pytest.raises(dp.ReleaseError, match=r"windows/000004' .* must be window 4 of the"):
            _ = dp.read_windows(tmp_path).windows[4]


def kill_before(
    monkeypatch: pytest.MonkeyPatch, place: Place, method: str, act: Callable[[], Any]
) -> None:
    def killed(*_: Any) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(place.owner, method, killed)
        for remove in {"remove_draft", "delete"} & set(place.steps):
            patch.setattr(place.owner, remove, lambda *_: None)
        with pytest.raises(KilledError):
            act()


def test_finishing_completes_windows_and_removes_drafts_everywhere(place, monkeypatch):
    url = place.url()
    horizon_id = released_horizon(url, PLAN, range(4), (0,))
    place_step = (
        "place" if "place" in place.steps and place.owner.__name__ == "LocalStore" else "copy"
    )
    publish = "create_exclusively" if place_step == "place" else "copy_exclusively"
    kill_before(monkeypatch, place, place_step, lambda: commit_window(PLAN, url, 4, horizon_id))
    kill_before(monkeypatch, place, publish, lambda: commit_window(PLAN, url, 5, horizon_id))
    kill_before(monkeypatch, place, publish, lambda: commit_block(PLAN, url, 1, horizon_id))
    assert sum(".draft-" in name for name in place.names()) >= 3
    with pytest.raises(dp.ReleaseError, match=r"windows/000004' .* `beam-dp finish"):
        dp.read_windows(url).answer(WORKLOAD, slice(4, 5))
    assert finish_writing(url) is False
    assert not any(".draft-" in name for name in place.names())
    assert released(url, card_of(PLAN)) == Released((0, 1, 2, 3, 4), (0,), 2)
    dp.read_windows(url).answer(WORKLOAD, slice(0, 5))
    commit_window(PLAN, url, 5, horizon_id)
    commit_block(PLAN, url, 1, horizon_id)
    assert finish_writing(url) is True
    assert read_horizon(url)[0] == FIRST


def test_finish_removes_drafts_even_if_the_horizon_is_damaged(tmp_path):
    released_horizon(str(tmp_path), PLAN, (0,))
    (tmp_path / "windows" / "000001" / ".draft-x").mkdir(parents=True)
    (tmp_path / "horizon.json").write_text("{}")
    with pytest.raises(dp.ReleaseError, match=r"horizon\.json"):
        finish_writing(tmp_path)
    assert not any(".draft-" in name for name in everything_under(tmp_path))


def test_file_size_does_not_depend_on_counts(tmp_path):
    """Names and sizes must reveal nothing: only checksums and the draw differ."""
    sizes = set()
    for number in (1, 2):
        release = window_of(number)
        for names in release.tables:
            release.tables[names][...] *= 10.0 ** (9 * number)
        dp.write_release(release, tmp_path / str(number))
        card, file = sorted((tmp_path / str(number)).iterdir())
        sizes.add((card.stat().st_size, file.stat().st_size))
    assert len(sizes) == 1


def test_rejects_too_many_measurements():
    release = window_of(**GAUSSIAN)
    with pytest.raises(
        dp.InputError, match=r"noise: .* inside what is measured: must be at most 2"
    ):
        dataclasses.replace(release, measured=release.measured * 2**18)
