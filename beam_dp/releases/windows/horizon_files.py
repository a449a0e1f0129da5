"""The directory of a horizon: ``horizon.json``, and a release in a folder of its own each window.

A directory holds ``horizon.json``, which a job creates before anything else, ``windows/NNNNNN/``
and, where blocks of N windows are measured, ``levels/N/NNNNNN/``. Each of these folders is that of
one release, committed by ``commit_release``: attempts of several jobs on a horizon may meet there.
"""

from __future__ import annotations

import os
import posixpath  # buckets know slashes, and so does every system
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from beam_dp.errors import InputError, shown
from beam_dp.releases.files.card import CARD, HORIZON, READ_ERRORS, ReleaseError, told
from beam_dp.releases.files.commit import BEGINNING, advice_on_drafts
from beam_dp.releases.files.probe import probe_output
from beam_dp.releases.kinds import read_release
from beam_dp.releases.release import Release
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.windows.horizon import HorizonRelease
from beam_dp.releases.windows.horizon_card import HorizonCard
from beam_dp.releases.windows.window import Level, WindowTables
from beam_dp.storage.of_url import store_for
from beam_dp.storage.store import Store
from beam_dp.windows.blocks import Blocks

_WINDOWS = "windows"
_LEVELS = "levels"
# What a card of a horizon says in these is told apart name by name.
_NESTED = ("horizon", "guarantee", "plan", "source")
# Follow from other fields. Words may change with a version, last digits with a machine.
_DERIVED = ("promise", "worst_case", "window_loss")
_KEPT = 256  # releases that were read, in memory

Directory = str | os.PathLike[str]


def window_directory(directory: Directory, number: int) -> str:
    """Returns the directory of the release of a window, local or in a bucket.

    Example:
        >>> window_directory("gs://releases/week", 7)
        'gs://releases/week/windows/000007'
    """
    return posixpath.join(directory, _WINDOWS, f"{number:06d}")


def block_directory(directory: Directory, size: int, number: int) -> str:
    """Returns the directory of the release of a block of so many windows.

    Example:
        >>> block_directory("out/week", 24, 0)
        'out/week/levels/24/000000'
    """
    return posixpath.join(directory, _LEVELS, str(size), f"{number:06d}")


def begin_horizon(directory: Directory, card: HorizonCard, new_id: str) -> str:
    """Creates the ``horizon.json`` of a directory, or finds that of a job that began before.

    Call it before the ledger is paid from: the id tells the entry that was paid for. Of several
    jobs that begin at once one creates the file, and all get its id.

    Privacy: a job that goes on promises what the file says, or is refused; and it is refused where
    its source can't be read again from the start, unless each window is promised for itself: which
    windows of a unit are kept follows from all its records, and would not be the same.

    Args:
        directory: of the horizon; it does not exist yet, is empty, or holds this horizon.
        card: what the job promises.
        new_id: 32 hexadecimal digits that no other horizon has: ``NoiseSource.draw_id``.

    Returns:
        The id of the horizon, as the file says.

    Raises:
        InputError: if the directory holds something else, or can't be written; or the horizon was
            begun with other parameters, the first of which it names.
        ReleaseError: if its ``horizon.json`` is damaged.
    """
    store = store_for(directory, "output")
    begun = _read_begun(store, directory)
    if begun is None:
        try:
            probe_output(directory)
            _create(store, card.text(new_id).encode(), new_id)
        except OSError as error:
            condition = f"must be a directory that can be written: {error.strerror}"
            raise InputError("output", os.fspath(directory), condition) from None
        except InputError:
            if _read_begun(store, directory) is None:  # else another job just began it
                raise
        begun = _read_begun(store, directory)
    if begun is None:
        raise InputError("output", os.fspath(directory), "must be written by nobody else")
    horizon_id, found = begun
    _refuse_difference(card.promised(), found.promised(), directory)
    if horizon_id != new_id:
        _refuse_other_records(card)
    return horizon_id


def check_promise(directory: Directory, card: HorizonCard) -> str | None:
    """Refuses to release what the horizon of a directory does not promise.

    Args:
        directory: of a horizon; where none was begun, nothing is refused.
        card: what would be promised. Its source may say less, and whether it is replayable is not
            compared.

    Returns:
        The id of the horizon; None where none was begun.

    Raises:
        InputError: naming the first field that differs.
        ReleaseError: if its ``horizon.json`` is damaged.
    """
    begun = _read_begun(store_for(directory, "output"), directory)
    if begun is None:
        return None
    horizon_id, found = begun
    source = {name: found.source[name] for name in card.source if name in found.source}
    stated = {"source": source, "replayable": card.replayable}
    _refuse_difference(card.promised(), {**found.promised(), **stated}, directory)
    return horizon_id


@dataclass(frozen=True)
class Released:
    """Which releases of a horizon have a card.

    Args:
        windows: numbers of windows, in ascending order.
        blocks: numbers of blocks.
        num_missing: how many windows and blocks have none yet.
    """

    windows: tuple[int, ...]
    blocks: tuple[int, ...]
    num_missing: int


def released(directory: Directory, card: HorizonCard) -> Released:
    """Returns which releases of a horizon have a card, without reading one.

    Raises:
        OSError: if the directory can't be listed.

    Cost: a look at each folder, some microseconds; in a bucket a request for each 1,000 files.
    """
    store = store_for(directory, "output")
    most = card.horizon.num_windows
    windows = _numbers(store.folders(_WINDOWS, CARD), most)
    blocks: tuple[int, ...] = ()
    if card.block is not None:
        blocks = _numbers(store.folders(f"{_LEVELS}/{card.block}", CARD), card.num_blocks)
    return Released(windows, blocks, most - len(windows) + card.num_blocks - len(blocks))


def release_directories(directory: Directory) -> list[str]:
    """Returns a directory, and all in it in which releases of windows and blocks are written."""
    store = store_for(directory, "output")
    above = [_WINDOWS, *(f"{_LEVELS}/{size}" for size in store.folders(_LEVELS))]
    inside = [f"{each}/{name}" for each in above for name in store.folders(each)]
    return [os.fspath(directory), *(posixpath.join(directory, each) for each in inside)]


def read_horizon(directory: Directory) -> tuple[str, HorizonCard]:
    """Returns the id of the horizon of a directory, and what its ``horizon.json`` says.

    Raises:
        ReleaseError: if it holds none, or a damaged one.
    """
    store = store_for(directory, "release")
    begun = _read_begun(store, directory)
    if begun is None:
        condition = "must be a directory that holds the windows of a horizon"
        raise ReleaseError(os.fspath(directory), condition + advice_on_drafts(store, directory))
    return begun


def read_windows(directory: Directory) -> HorizonRelease:
    """Reads a horizon, whose windows need not all be released yet.

    What is damaged or hostile is refused, as by ``read_release``; of a window when it is asked for:
    a sum of 24 windows reads 24, and a description none, however many there are. Which windows are
    released is what was there at this call.

    Args:
        directory: of the horizon; local, ``gs://BUCKET/FOLDER`` or ``s3://BUCKET/FOLDER``.

    Raises:
        ReleaseError: if it holds no horizon, or a damaged one; later, naming its directory, if a
            window or block is damaged, or of another horizon, number, promise or workload.

    Cost: that of ``released``. Up to 256 windows and blocks stay in memory once they were read.

    Example:
        >>> week = read_windows("out/week-48")  # doctest: +SKIP
        >>> week.answer(marginals(week.domain, ways=1), slice(10, 34))  # doctest: +SKIP
    """
    horizon_id, card = read_horizon(directory)
    try:
        found = released(directory, card)
        _refuse_unpromised(directory, card, found)
    except OSError as error:
        raise ReleaseError(os.fspath(directory), f"cannot be read: {error.strerror}") from None

    def of(level: Level, numbers: tuple[int, ...]) -> _Lazy:
        return _Lazy(numbers, lambda number: _read_one(directory, horizon_id, card, level, number))

    return HorizonRelease(
        horizon=card.horizon,
        horizon_id=horizon_id,
        guarantee=card.guarantee,
        workload=card.workload,
        windows=of("window", found.windows),
        block=card.block,
        blocks=of("block", found.blocks),
        card=card.promised(),
    )


class _Lazy(Mapping[int, Any]):
    """Releases by number, each read when it is asked for."""

    def __init__(self, numbers: tuple[int, ...], read: Callable[[int], Release]) -> None:
        self._numbers = dict.fromkeys(numbers)
        self._read = lru_cache(maxsize=_KEPT)(read)

    def __getitem__(self, number: int) -> Any:
        if number not in self._numbers:
            raise KeyError(number)
        return self._read(number)

    def __contains__(self, number: object) -> bool:
        return number in self._numbers

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


def _read_one(
    directory: Directory, horizon_id: str, card: HorizonCard, level: Level, number: int
) -> Release:
    place, windows = window_directory(directory, number), range(number, number + 1)
    if level == "block" and card.block is not None:
        place = block_directory(directory, card.block, number)
        windows = Blocks(card.horizon.num_windows, card.block).windows(number)
    release = read_release(place)
    if isinstance(release, WindowTables):
        promised: Any = card.guarantee.to_json()
        stated: Any = (release.horizon_id, release.level, release.number)
    elif isinstance(release, SyntheticDatabase):
        promised = _object(card.plan.get("window")).get("guarantee")
        of_window = _object(release.plan.get("windows"))
        stated = (of_window.get("horizon_id"), "window", of_window.get("number"))
    else:
        raise ReleaseError(place, f"must be a {level} of a horizon")
    if stated != (horizon_id, level, number):
        raise ReleaseError(place, f"must be {level} {number} of the horizon {horizon_id}")
    times = card.horizon.times(windows)
    if isinstance(release, WindowTables) and (release.start, release.end) != times:
        raise ReleaseError(place, f"must have the times of its {level} in {HORIZON}")
    if release.workload != card.workload or release.guarantee.to_json() != promised:
        raise ReleaseError(place, f"must have the promise and the workload of its {HORIZON}")
    return release


def _refuse_unpromised(directory: Directory, card: HorizonCard, found: Released) -> None:
    """Refuses a directory with releases that are no window, and no block, of its horizon."""
    store, known = store_for(directory, "release"), {_WINDOWS: found.windows}
    if card.block is not None:
        known[f"{_LEVELS}/{card.block}"] = found.blocks
    for inside in (_WINDOWS, *(f"{_LEVELS}/{size}" for size in store.folders(_LEVELS))):
        promised = {f"{number:06d}" for number in known.get(inside, ())}
        for name in store.folders(inside, CARD):
            if name not in promised:
                condition = f"holds a release in {inside}/{name} that {HORIZON} does not promise"
                raise ReleaseError(os.fspath(directory), condition)


def _object(value: Any) -> Mapping[str, Any]:
    """Returns a JSON object; nothing in the place of any other value."""
    return value if isinstance(value, Mapping) else {}


def _read_begun(store: Store, directory: Directory) -> tuple[str, HorizonCard] | None:
    """Returns what the ``horizon.json`` of a directory says, None where there is none."""
    try:
        return HorizonCard.from_text(store.read(HORIZON).decode())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except READ_ERRORS as error:
        raise ReleaseError(os.fspath(directory), f"{HORIZON}{told(error)}") from None


def _create(store: Store, text: bytes, new_id: str) -> None:
    """Publishes the file whole, unless another one was; the draft goes."""
    draft = store.open_draft(f"{BEGINNING}-{new_id}")
    try:
        store.publish(draft, HORIZON, text)
    finally:
        store.remove_draft(draft)


def _numbers(names: Iterable[str], most: int) -> tuple[int, ...]:
    found = [int(name) for name in names if re.fullmatch("[0-9]{6}|[1-9][0-9]{6}", name)]
    return tuple(sorted(number for number in found if number < most))


def _refuse_difference(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], directory: Directory
) -> None:
    """Raises InputError for the first field in which what a job promises is not what was begun."""
    for name in {**ours, **theirs}:
        own, begun = ours.get(name), theirs.get(name)
        if own == begun or name in _DERIVED:
            continue
        if name in _NESTED and isinstance(own, Mapping) and isinstance(begun, Mapping):
            _refuse_difference(own, begun, directory)
            continue
        file = f"{HORIZON} in {os.fspath(directory)!r}"
        condition = f"must be {shown(begun)}, as {file} says: a horizon goes on as it was begun"
        if name not in theirs:
            condition = f"must be what the horizon was begun with, and {file} does not say what"
        raise InputError(name, own, f"{condition}, and another one needs another directory")


def _refuse_other_records(card: HorizonCard) -> None:
    if card.needs_same_records and not card.replayable:
        condition = (
            "must be True for a horizon that was begun before, unless protected_windows is 1 and no"
            " blocks are measured: which windows of a unit are kept follows from all its records"
            " since the start"
        )
        raise InputError("replayable", False, condition)
