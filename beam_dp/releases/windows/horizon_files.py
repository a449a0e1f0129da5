"""The directory of a horizon: ``horizon.json``, and a folder with the release of each window.

A directory contains ``horizon.json``, which a job creates before any other file, the folders
``windows/NNNNNN/`` and, if blocks of N windows are measured, ``levels/N/NNNNNN/``. Each folder
contains one release. ``commit_release`` writes the releases, so several jobs may write at once.
"""

from __future__ import annotations

import json
import os
import posixpath  # slashes work in buckets and on every system
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Self

from beam_dp.checks import check_choice, check_id
from beam_dp.domain.files import domain_from_json
from beam_dp.domain.horizon import (
    MECHANISM,
    Blocks,
    Horizon,
    WindowUnit,
    stated_promise,
    whole_promise,
)
from beam_dp.errors import InputError, shown
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import Workload, workload_from_json
from beam_dp.releases.files.card import (
    CARD,
    HORIZON,
    LEVELS,
    READ_ERRORS,
    WINDOWS,
    ReleaseError,
    check_fields,
    check_types,
    parsed_card,
    reading_fault,
)
from beam_dp.releases.files.commit import BEGINNING, advice_on_drafts, probe_output
from beam_dp.releases.kinds import read_release
from beam_dp.releases.release import Release, library_versions, plain_json
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.windows.release import HorizonRelease, Level, WindowTables
from beam_dp.storage.avro import SCHEMA_VERSION
from beam_dp.storage.open import store_for
from beam_dp.storage.store import Store

KIND = "horizon"
_HORIZON = ("start", "window", "num_windows", "grace")
_UNIT = ("privacy_unit", "max_records_per_unit", "max_windows_per_unit", "protected_windows")
TYPES = {
    **dict.fromkeys(("kind", "horizon_id", "mechanism", "privacy_unit", "promise"), str),
    **dict.fromkeys(_UNIT[1:], int),
    **dict.fromkeys(("worst_case", "horizon", "guarantee", "domain", "workload"), dict),
    **dict.fromkeys(("plan", "source"), dict),
    "replayable": bool,
}


@dataclass(frozen=True, eq=False, kw_only=True)
class HorizonCard:
    """The privacy guarantee of a horizon and the parameters of its jobs; everything is public.

    ``plan``: the plan of the noise, as JSON values: ``public`` of a plan of windows.
    ``source``: the parameters of the input that must be equal after a restart, such as the columns
    of times, as JSON values.
    """

    horizon: Horizon
    unit: WindowUnit
    guarantee: Guarantee
    workload: Workload
    plan: Mapping[str, Any]
    replayable: bool
    source: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        epsilon, delta = self.guarantee.epsilon, self.guarantee.delta
        # The author of a stored guarantee has already allowed a large delta.
        whole = whole_promise(self.horizon, self.unit, epsilon, delta, allow_large_delta=True)
        if self.guarantee != whole:
            condition = "must protect any protected_windows windows of this unit"
            raise InputError("guarantee", self.guarantee.to_json(), condition)
        if not isinstance(self.replayable, bool):
            raise InputError("replayable", self.replayable, "must be True or False")
        fields = self._stated()
        plan = {name: value for name, value in self.plan.items() if name not in fields}
        object.__setattr__(self, "plan", plain_json(plan))
        object.__setattr__(self, "source", plain_json(dict(self.source)))
        if self.block is not None:
            Blocks(self.horizon.num_windows, self.block)

    @property
    def block(self) -> int | None:
        """The number of windows per block; None if no blocks are measured."""
        return self.plan.get("block")

    @property
    def num_blocks(self) -> int:
        """The number of measured blocks."""
        return 0 if self.block is None else len(Blocks(self.horizon.num_windows, self.block))

    @property
    def needs_same_records(self) -> bool:
        """Whether a resumed job must read the same records as the earlier job.

        The windows that are kept for a unit depend on all records of the unit since the start,
        unless the guarantee is for each window separately.
        """
        of_each = (self.unit.protected_windows, self.unit.max_windows_per_unit) == (1, 1)
        return self.block is not None or not of_each

    def promised(self) -> dict[str, Any]:
        """Returns the JSON values that identify a horizon."""
        return {
            "mechanism": MECHANISM,
            **self._stated(),
            "guarantee": self.guarantee.to_json(),
            "domain": self.workload.domain.to_json(),
            "workload": self.workload.to_json(),
            "plan": dict(self.plan),
            "source": dict(self.source),
            "replayable": self.replayable,
        }

    def ledger_parameters(self, horizon_id: str) -> dict[str, Any]:
        """Returns the parameters for the ledger's entry, as JSON values."""
        return {"horizon_id": horizon_id, **self._stated(), "plan": dict(self.plan)}

    def text(self, horizon_id: str) -> str:
        """Returns the text of ``horizon.json``."""
        card = {
            "schema_version": SCHEMA_VERSION,
            "kind": KIND,
            "horizon_id": horizon_id,
            **self.promised(),
            "versions": library_versions(),
        }
        return json.dumps(card, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_text(cls, text: str) -> tuple[str, Self]:
        """Returns the id and the card in the text of a ``horizon.json``."""
        parsed = parsed_card(text)
        check_fields(parsed, TYPES)
        check_choice("kind", parsed["kind"], (KIND,))
        check_choice("mechanism", parsed["mechanism"], (MECHANISM,))
        horizon_id = parsed["horizon_id"]
        check_id("horizon_id", horizon_id)
        check_types(parsed["horizon"], dict.fromkeys(_HORIZON, int))
        domain = domain_from_json(parsed["domain"], "card")
        card = cls(
            horizon=Horizon(**{name: parsed["horizon"][name] for name in _HORIZON}),
            unit=WindowUnit(**{name: parsed[name] for name in _UNIT}),
            guarantee=Guarantee.from_json(parsed["guarantee"]),
            workload=workload_from_json(parsed["workload"], domain),
            **{name: parsed[name] for name in ("plan", "source", "replayable")},
        )
        fields = card._stated()
        unknown = set(parsed) - {*card.promised(), *TYPES, "schema_version", "versions"}
        for name in sorted(unknown):
            raise InputError(name, parsed[name], f"must not be in {HORIZON}: it is unknown")
        # The text of the promise is not compared, because it may change with a version.
        for name in ("worst_case", "horizon"):
            if parsed[name] != fields[name]:
                raise InputError(name, parsed[name], "must follow from the other fields")
        return horizon_id, card

    def _stated(self) -> dict[str, Any]:
        return {
            "privacy_unit": self.unit.privacy_unit,
            **stated_promise(self.horizon, self.unit, self.guarantee),
        }


# Fields that are compared name by name.
_NESTED = ("horizon", "guarantee", "plan", "source")
# Derived fields: texts may differ between versions, and last digits between machines.
_DERIVED = ("promise", "worst_case", "window_loss")
_KEPT = 256  # the number of releases to keep in memory

Directory = str | os.PathLike[str]


def window_directory(directory: Directory, number: int) -> str:
    """Returns the directory of the release of a window, local or in a bucket."""
    return posixpath.join(directory, WINDOWS, f"{number:06d}")


def block_directory(directory: Directory, size: int, number: int) -> str:
    """Returns the directory of the release of a block of ``size`` windows."""
    return posixpath.join(directory, LEVELS, str(size), f"{number:06d}")


def begin_horizon(directory: Directory, card: HorizonCard, new_id: str) -> str:
    """Creates the ``horizon.json`` of a directory, or reads the file of an earlier job.

    Call this before paying from the ledger, whose entry names the id. If several jobs begin at the
    same time, one job creates the file, and all jobs get the id in the file.

    ``directory``: a directory that is missing, empty, or contains this horizon.

    Privacy: a resumed job is refused unless it makes the promise in the file. It is also refused if
    its source can't be read again from the start, unless the promise is for each window separately:
    all records of a unit decide which of its windows count, so without them the choice may differ.
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
            if _read_begun(store, directory) is None:  # otherwise, another job just created it
                raise
        begun = _read_begun(store, directory)
    if begun is None:
        raise InputError("output", os.fspath(directory), "must not be written by other programs")
    horizon_id, earlier = begun
    _refuse_difference(card.promised(), earlier.promised(), directory)
    if horizon_id != new_id:
        _refuse_other_records(card)
    return horizon_id


def check_same_horizon(directory: Directory, card: HorizonCard) -> str | None:
    """Returns the id of a directory's horizon, which must match a card; None without a horizon."""
    # The card's source may have fewer fields than the horizon's; ``replayable`` is not compared.
    begun = _read_begun(store_for(directory, "output"), directory)
    if begun is None:
        return None
    horizon_id, earlier = begun
    source = {name: earlier.source[name] for name in card.source if name in earlier.source}
    settings = {"source": source, "replayable": card.replayable}
    _refuse_difference(card.promised(), {**earlier.promised(), **settings}, directory)
    return horizon_id


@dataclass(frozen=True)
class Released:
    """The ascending numbers of windows and blocks with a card, and how many have no card yet."""

    windows: tuple[int, ...]
    blocks: tuple[int, ...]
    num_missing: int


def released(directory: Directory, card: HorizonCard) -> Released:
    """Returns which releases of a horizon have a card, without reading the cards."""
    store = store_for(directory, "output")
    limit = card.horizon.num_windows
    windows = _numbers(store.folders(WINDOWS, CARD), limit)
    blocks: tuple[int, ...] = ()
    if card.block is not None:
        blocks = _numbers(store.folders(f"{LEVELS}/{card.block}", CARD), card.num_blocks)
    return Released(windows, blocks, limit - len(windows) + card.num_blocks - len(blocks))


def progress_of(directory: Directory) -> str:
    """Returns the numbers of released windows and blocks as text."""
    _, card = read_horizon(directory)
    done = released(directory, card)
    state = f"{len(done.windows):,} of {card.horizon.num_windows:,} windows are released"
    if card.block is not None:
        state += f", {len(done.blocks):,} of {card.num_blocks:,} blocks"
    return state


def read_horizon(directory: Directory) -> tuple[str, HorizonCard]:
    """Returns the id and the card of the horizon in a directory."""
    store = store_for(directory, "release")
    begun = _read_begun(store, directory)
    if begun is None:
        condition = "must be a directory with the windows of a horizon"
        raise ReleaseError(os.fspath(directory), condition + advice_on_drafts(store, directory))
    return begun


def read_windows(directory: Directory) -> HorizonRelease:
    """Reads a horizon, even if some windows have not been released yet.

    Damaged and hostile files are rejected, as in ``read_release``. A window is read on demand: a
    sum of 24 windows reads only these 24. Windows released after this call are not included.

    Args:
        directory: the directory of the horizon; local, ``gs://BUCKET/FOLDER`` or
            ``s3://BUCKET/FOLDER``.

    Raises:
        ReleaseError: if the directory has no horizon or a damaged one. Later, when a window or
            block is read: if the window or block is damaged, or belongs to another horizon, number,
            promise or workload; the message names its directory.

    Cost: some microseconds per window; in a bucket one request per 1,000 files. Up to 256 windows
    and blocks stay in memory after reading.

    Example:
        >>> week = read_windows("out/week-48")  # doctest: +SKIP
        >>> week.answer(marginals(week.domain, ways=1), slice(10, 34))  # doctest: +SKIP
    """
    horizon_id, card = read_horizon(directory)
    try:
        done = released(directory, card)
        _refuse_unpromised(directory, card, done)
    except OSError as error:
        raise ReleaseError(os.fspath(directory), f"cannot be read: {error.strerror}") from None

    def of(level: Level, numbers: tuple[int, ...]) -> _Lazy:
        return _Lazy(numbers, lambda number: _read_one(directory, horizon_id, card, level, number))

    return HorizonRelease(
        horizon=card.horizon,
        horizon_id=horizon_id,
        guarantee=card.guarantee,
        workload=card.workload,
        windows=of("window", done.windows),
        block=card.block,
        blocks=of("block", done.blocks),
        card=card.promised(),
    )


def read_window(
    directory: Directory, number: int
) -> tuple[WindowTables | SyntheticDatabase, tuple[int, int]]:
    """Returns the checked release of one window, and the window's start and end in seconds."""
    horizon_id, card = read_horizon(directory)
    release = _read_one(directory, horizon_id, card, "window", number)
    return release, card.horizon.times(range(number, number + 1))


class _Lazy(Mapping[int, Any]):
    """Releases by number; a release is read on first access."""

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
) -> WindowTables | SyntheticDatabase:
    place, windows = window_directory(directory, number), range(number, number + 1)
    if level == "block" and card.block is not None:
        place = block_directory(directory, card.block, number)
        windows = Blocks(card.horizon.num_windows, card.block).windows(number)
    release = read_release(place)
    if isinstance(release, WindowTables):
        promised: Any = card.guarantee.to_json()
        identity: Any = (release.horizon_id, release.level, release.number)
    elif isinstance(release, SyntheticDatabase):
        promised = _object(card.plan.get("window")).get("guarantee")
        of_window = _object(release.plan.get("windows"))
        identity = (of_window.get("horizon_id"), "window", of_window.get("number"))
    else:
        raise ReleaseError(place, f"must be a {level} of a horizon")
    if identity != (horizon_id, level, number):
        raise ReleaseError(place, f"must be {level} {number} of the horizon {horizon_id}")
    times = card.horizon.times(windows)
    if isinstance(release, WindowTables) and (release.start, release.end) != times:
        raise ReleaseError(place, f"must have the times of its {level} in {HORIZON}")
    if release.workload != card.workload or release.guarantee.to_json() != promised:
        raise ReleaseError(place, f"must have the promise and the workload of its {HORIZON}")
    return release


def _refuse_unpromised(directory: Directory, card: HorizonCard, done: Released) -> None:
    """Raises ReleaseError if a directory has releases that its horizon does not promise."""
    store, places = store_for(directory, "release"), {WINDOWS: done.windows}
    if card.block is not None:
        places[f"{LEVELS}/{card.block}"] = done.blocks
    for inside in (WINDOWS, *(f"{LEVELS}/{size}" for size in store.folders(LEVELS))):
        promised = {f"{number:06d}" for number in places.get(inside, ())}
        for name in store.folders(inside, CARD):
            if name not in promised:
                condition = f"contains a release in {inside}/{name} that {HORIZON} does not promise"
                raise ReleaseError(os.fspath(directory), condition)


def _object(value: Any) -> Mapping[str, Any]:
    """Returns a JSON object, or an empty object for any other value."""
    return value if isinstance(value, Mapping) else {}


def _read_begun(store: Store, directory: Directory) -> tuple[str, HorizonCard] | None:
    """Returns the id and the card in the ``horizon.json`` of a directory; None if there is none."""
    try:
        return HorizonCard.from_text(store.read(HORIZON).decode())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except READ_ERRORS as error:
        raise ReleaseError(os.fspath(directory), f"{HORIZON}{reading_fault(error)}") from None


def _create(store: Store, text: bytes, new_id: str) -> None:
    """Publishes the file unless the directory already has one, and removes the draft."""
    draft = store.open_draft(f"{BEGINNING}-{new_id}")
    try:
        store.publish(draft, HORIZON, text)
    finally:
        store.remove_draft(draft)


def _numbers(names: Iterable[str], limit: int) -> tuple[int, ...]:
    numbers = [int(name) for name in names if re.fullmatch("[0-9]{6}|[1-9][0-9]{6}", name)]
    return tuple(sorted(number for number in numbers if number < limit))


def _refuse_difference(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], directory: Directory
) -> None:
    """Raises InputError for the first field that differs from the horizon in the directory."""
    for name in {**ours, **theirs}:
        mine, begun = ours.get(name), theirs.get(name)
        if mine == begun or name in _DERIVED:
            continue
        if name in _NESTED and isinstance(mine, Mapping) and isinstance(begun, Mapping):
            _refuse_difference(mine, begun, directory)
            continue
        file = f"{HORIZON} in {os.fspath(directory)!r}"
        condition = f"must be {shown(begun)}, as {file} states: a horizon keeps its parameters"
        if name not in theirs:
            condition = f"must be the horizon's first value, which {file} does not state"
        raise InputError(name, mine, f"{condition}; use a new directory for a new horizon")


def _refuse_other_records(card: HorizonCard) -> None:
    if card.needs_same_records and not card.replayable:
        condition = (
            "must be True for a horizon that was begun before, unless protected_windows is 1 and no"
            " blocks are measured: which windows of a unit are kept follows from all its records"
            " since the start"
        )
        raise InputError("replayable", False, condition)
