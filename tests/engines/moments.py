"""Moments in the work of a Python worker at which a test kills something.

A test arms one moment; the first worker of any process that reaches it reports so and waits, and
the test kills a process of its choice. The library is unchanged: its methods are wrapped in the
worker's process when it starts. The name of every draw of noise is recorded, too.
"""

import functools
import json
import os
import pathlib
import shutil
import time
import uuid
from collections.abc import Callable
from typing import Any

from patience import wait_for

from beam_dp.mechanisms.windows.plan import WindowTablesPlan
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.releases.windows.release import WindowTables
from beam_dp.secret.summaries.histogram import HistogramAccumulator, Marginals, MarginalsAccumulator
from beam_dp.secret.summaries.projection import ProjectionAccumulator
from beam_dp.secret.summaries.sparse_counts import ElementCounts
from beam_dp.storage.bucket import BucketStore
from beam_dp.storage.google import GoogleBucket
from beam_dp.storage.store import LocalStore

VARIABLE = "BEAM_DP_TEST_MOMENTS"  # names the folder
COUNTING = "in the distributed pass"
DRAWN = "just after the noise was drawn"
# Moments of the write, in this order.
EMPTY_DRAFT = "with an empty draft"
HALF_DRAFT = "with half a draft"
BEFORE_CARD = "before the card"
AFTER_CARD = "after the card, before the payload"
BEFORE_TIDYING = "before drafts are removed"
WRITING = (EMPTY_DRAFT, HALF_DRAFT, BEFORE_CARD, AFTER_CARD, BEFORE_TIDYING)
_COUNTERS = (
    (HistogramAccumulator, "add_batch"),
    (MarginalsAccumulator, "add_batch"),
    (ProjectionAccumulator, "add_batch"),
)


class Moments:
    """The folder through which a test and workers communicate."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self._armed, self._taken = folder / "armed", folder / "taken"
        self._reached, self._go = folder / "reached", folder / "go"
        self._outlives, self._careless = folder / "outlives", folder / "careless"
        self._draws, self._tables = folder / "draws", folder / "tables"
        for kept in (self._draws, self._tables):
            kept.mkdir(parents=True, exist_ok=True)

    def arm(self, moment: str, *, outlives: bool = False, is_careless: bool = False) -> None:
        """Makes the first worker that reaches a moment wait.

        ``outlives``: even without its task manager, and then continues. ``is_careless``: all
        writers publish files of a draft as they are written.
        """
        self.disarm()
        if is_careless:
            self._careless.touch()
        if outlives:
            self._outlives.touch()
        self._write(self._armed, moment)

    def disarm(self) -> None:
        """Lets all workers continue; forgets the draws."""
        self._go.touch()
        files = (self._armed, self._taken, self._reached, self._outlives, self._careless)
        for file in (*files, *self._draws.iterdir(), *self._tables.iterdir()):
            file.unlink(missing_ok=True)
        self._go.unlink()

    def reached(self) -> dict[str, Any] | None:
        """The waiting process, and the address that controls it."""
        try:
            found: dict[str, Any] = json.loads(self._reached.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return found

    def let_go(self) -> None:
        """Ends the wait."""
        self._go.touch()

    def draws(self) -> set[str]:
        """The names of all draws since a moment was armed."""
        return {path.name for path in self._draws.iterdir()}

    def drawn(self, draw_id: str) -> None:
        """Records the name of a draw."""
        (self._draws / draw_id).touch()

    def window(self, number: int, counts: list[int]) -> None:
        """Records the exact table of a window each time it is drawn."""
        (self._tables / f"{uuid.uuid4()}").write_text(json.dumps([number, counts]))

    def windows(self) -> list[tuple[int, list[int]]]:
        """The number and the exact table of each draw of a window since a moment was disarmed."""
        return [tuple(json.loads(path.read_text())) for path in self._tables.iterdir()]

    def pass_by(self, moment: str, control: str) -> None:
        """Waits here, in one worker, if this is the armed moment."""
        try:
            if self._armed.read_text(encoding="utf-8") != moment:
                return
            os.rename(self._armed, self._taken)  # for one of all workers only
        except FileNotFoundError:
            return
        self._write(self._reached, json.dumps({"pid": os.getpid(), "control": control}))
        self.wait()

    def wait(self) -> None:
        """Waits until the test releases it or times out."""
        wait_for("the test", lambda: self._go.exists() or not self._reached.exists())

    def outlive(self) -> None:
        """Keeps a worker that waits alive without its task manager, and a while after the wait."""
        reached = self.reached()
        if self._outlives.exists() and reached is not None and reached["pid"] == os.getpid():
            self.wait()
            time.sleep(2.0)

    def publish(self, store: LocalStore, draft: str, name: str) -> None:
        """Publishes a file of a draft if writers are careless."""
        if self._careless.exists():
            shutil.copy(store._path / draft / name, store._path / name)

    def _write(self, path: pathlib.Path, text: str) -> None:
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.rename(path)


def install(control: str) -> None:
    """Wraps the methods of this process, if the environment names a folder."""
    if VARIABLE not in os.environ:
        return
    moments = Moments(pathlib.Path(os.environ[VARIABLE]))

    def pause(moment: str) -> Callable[[Any], None]:
        return lambda _: moments.pass_by(moment, control)

    write_draft = LocalStore.write_draft

    def write(self: LocalStore, draft: str, name: str, data: bytes) -> Any:
        written = write_draft(self, draft, name, data)
        moments.publish(self, draft, name)
        return written

    def drawn(draw_id: Any) -> None:
        moments.drawn(draw_id)
        moments.pass_by(DRAWN, control)

    draw = WindowTablesPlan.draw

    def draw_window(
        self: WindowTablesPlan, number: int, marginals: Marginals, *others: Any
    ) -> WindowTables:
        counts = marginals.marginal(self.workload.marginals[0])
        moments.window(number, counts.ravel().tolist())
        return draw(self, number, marginals, *others)

    WindowTablesPlan.draw = draw_window  # type: ignore[method-assign]
    for owner, name in _COUNTERS:
        _wrap(owner, name, before=pause(COUNTING))
    _wrap(ElementCounts, "of", before=pause(COUNTING))
    _wrap(NoiseSource, "draw_id", after=drawn)
    LocalStore.write_draft = write  # type: ignore[method-assign]
    for store in (LocalStore, BucketStore):
        _wrap(store, "open_draft", after=pause(EMPTY_DRAFT))
        _wrap(store, "write_draft", after=pause(HALF_DRAFT))
        _wrap(store, "remove_draft", before=pause(BEFORE_TIDYING))
    for owner, name in ((LocalStore, "create_exclusively"), (GoogleBucket, "copy_exclusively")):
        _wrap(owner, name, before=pause(BEFORE_CARD), after=pause(AFTER_CARD))


def outlive() -> None:
    """See ``Moments.outlive``."""
    if VARIABLE in os.environ:
        Moments(pathlib.Path(os.environ[VARIABLE])).outlive()


def _nothing(_: Any) -> None:
    pass


def _wrap(
    owner: type,
    name: str,
    before: Callable[[Any], None] = _nothing,
    after: Callable[[Any], None] = _nothing,
) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        before(None)
        result = original(*arguments, **named)
        after(result)
        return result

    is_bound = hasattr(original, "__self__")  # a class method
    setattr(owner, name, staticmethod(wrapped) if is_bound else wrapped)
