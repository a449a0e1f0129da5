"""A retried worker publishes no second draw (the output and all remaining files contain one).

Three kinds of runner: FnApiRunner that does every bundle three times; the same with a writer that
fails and is done again; and one that fails the bundle and retries it, by Beam's own hand. Each with
the barrier behind the draw, and with a runner that does not keep what passed it.
"""

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner
from barriers import remove_barriers
from jobs import breaks_later, everything_under, files_of_one_draw, job_flags, released_records
from noise_sources import watch_draws
from pytest import MonkeyPatch
from written_draws import draw_of

import beam_dp.transforms.writing as write_module
from beam_dp.releases.kinds import read_release
from beam_dp.releases.release import Release
from beam_dp.releases.synthetic_database import shards
from beam_dp.storage.store import LocalStore
from pipelines.program import build
from pipelines.release_synthetic_database import main, parse_arguments

DRAWS: list[str] = []
FAILURES: list[str] = []


class CrashError(Exception):
    """What the first attempt dies of."""


def _fail(method: str, *, after: bool) -> Callable[[MonkeyPatch], None]:
    """Lets the first call of a store's method fail, before or after its work."""

    def install(patch: MonkeyPatch) -> None:
        original = getattr(LocalStore, method)

        def failing(*arguments: Any) -> Any:
            result = original(*arguments) if after else None
            if not FAILURES:
                FAILURES.append("failed")
                raise CrashError
            return result if after else original(*arguments)

        patch.setattr(LocalStore, method, failing)

    return install


def _killed_before_card(patch: MonkeyPatch) -> None:
    """Like kill -9: the draft stays, because nothing cleans up."""
    _fail("create_exclusively", after=False)(patch)
    original = LocalStore.remove_draft

    def remove(self: LocalStore, draft: str) -> None:
        if FAILURES == ["failed"]:
            FAILURES.append("left its draft")
        else:
            original(self, draft)

    patch.setattr(LocalStore, "remove_draft", remove)


# All steps are tried in ``releases/test_orders_of_steps``.
CRASHES: dict[str, Callable[[MonkeyPatch], None]] = {
    "with half a draft": _fail("write_draft", after=True),
    "before the card": _fail("create_exclusively", after=False),
    "killed before the card, its draft left": _killed_before_card,
    "after the card, before the payload": _fail("create_exclusively", after=True),
    "after half of the payload": _fail("place", after=True),
    "at the very end": _fail("remove_draft", after=True),
}


@pytest.fixture(autouse=True)
def watched(monkeypatch, tmp_path) -> Iterator[None]:
    watch(monkeypatch, tmp_path)
    breaks_later(monkeypatch)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    yield


def watch(patch: MonkeyPatch, folder: Path) -> None:
    """Notes the draws of the programs, and keeps temporary files in the folder ``temporary``."""
    FAILURES.clear()
    watch_draws(patch, DRAWS)
    (folder / "temporary").mkdir()
    patch.setattr(tempfile, "tempdir", str(folder / "temporary"))


@pytest.fixture(params=["a barrier that holds", "a barrier that does not"])
def barrier(request, monkeypatch) -> bool:
    """Without it, the writer gets another draw each time that the draw's bundle is done again."""
    holds: bool = request.param == "a barrier that holds"
    if not holds:
        remove_barriers(monkeypatch)
    return holds


def assert_one_draw(folder: Path, num_shards: int = 1) -> None:
    """The output is one complete release; all remaining names and contents belong to its draw."""
    draw_id = read_release(folder / "out").draw_id
    assert everything_under(folder / "out") == files_of_one_draw(folder / "out", num_shards)
    assert everything_under(folder / "temporary") == []
    others = set(DRAWS) - {draw_id}
    for path in (folder / "out").iterdir():
        data = path.read_bytes()
        assert not [other for other in others if other.encode() in data]
        assert set(re.findall(rb"[0-9a-f]{32}", data)) - {draw_id.encode()} <= _checksums(folder)
    assert json.loads((folder / "out" / "card.json").read_text())["draw_id"] == draw_id
    assert len(released_records(folder / "out")) > 0


def _checksums(folder: Path) -> set[bytes]:
    card = json.loads((folder / "out" / "card.json").read_text())
    sums = [entry["sha256"].encode() for entry in card["files"].values()]
    return {part for each in sums for part in (each[:32], each[32:])}


@pytest.mark.job
@pytest.mark.parametrize(
    ("crash", "num_shards"),
    [
        # A draft with several files of records stays in any case, so it is like other crashes.
        *((name, 1 if "killed" in name else 4) for name in CRASHES),
        ("before the card", 1),
    ],
)
def test_retried_bundle_leaves_one_draw(tmp_path, monkeypatch, crash, num_shards):
    if num_shards > 1:
        monkeypatch.setattr(shards, "SHARD_BYTES", 1500)
    CRASHES[crash](monkeypatch)
    pipeline = beam.Pipeline(runner=BundleBasedDirectRunner())
    build(parse_arguments(job_flags(tmp_path)), pipeline)
    pipeline.run().wait_until_finish()
    assert FAILURES
    assert_one_draw(tmp_path, num_shards)


@pytest.mark.job
@pytest.mark.parametrize("crash", CRASHES)
def test_replayed_writer_that_failed_first_leaves_one_draw(tmp_path, monkeypatch, barrier, crash):
    """FnApiRunner ends the job at a failure; here the failed attempt is one of its replays."""
    CRASHES[crash](monkeypatch)
    original = write_module._Commit.process

    def process(self: Any, draw: Any) -> Iterator[str]:
        try:
            yield from original(self, draw)
        except Exception:
            assert FAILURES

    monkeypatch.setattr(write_module._Commit, "process", process)
    assert main([*job_flags(tmp_path), "--direct_runner_bundle_repeat=2"]) == 0
    assert FAILURES
    assert len(set(DRAWS)) == 3
    assert_one_draw(tmp_path)


@pytest.mark.job
def test_writer_that_keeps_failing_leaves_no_draft(tmp_path, monkeypatch):
    def failing(*arguments: Any) -> Any:
        raise CrashError

    monkeypatch.setattr(LocalStore, "create_exclusively", failing)
    assert main(job_flags(tmp_path)) == 1
    assert everything_under(tmp_path / "temporary") == []
    assert not (tmp_path / "out").exists()


@pytest.mark.job
def test_job_with_a_killed_writer_leaves_no_draft(tmp_path, monkeypatch):
    _killed_before_card(monkeypatch)
    assert main(job_flags(tmp_path)) == 1
    assert FAILURES == ["failed", "left its draft"]
    assert everything_under(tmp_path / "out") == []


@pytest.mark.job
def test_one_draw_check_fails_if_writer_keeps_its_drafts(tmp_path, monkeypatch):
    """The checks above are not blind."""
    monkeypatch.setattr(LocalStore, "remove_draft", lambda self, draft: None)
    assert main([*job_flags(tmp_path), "--direct_runner_bundle_repeat=2"]) == 0
    with pytest.raises(AssertionError):
        assert_one_draw(tmp_path)


@pytest.mark.job
def test_writer_without_commit_leaves_several_draws(tmp_path, monkeypatch):
    """One that writes into the output at once, as an ordinary sink does, leaves several draws."""

    def commit(release: Release, directory: str, _: object) -> bool:
        folder = Path(directory)
        folder.mkdir(exist_ok=True)
        for name, data in draw_of(release).payload.items():
            (folder / name).write_bytes(data)
        return True

    remove_barriers(monkeypatch)
    monkeypatch.setattr(write_module, "commit_release", commit)
    main([*job_flags(tmp_path), "--direct_runner_bundle_repeat=2"])
    assert len(list((tmp_path / "out").glob("records-*.avro"))) == 3
