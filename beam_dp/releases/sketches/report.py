"""The report of a release for sparse queries."""

from __future__ import annotations

from beam_dp.releases.sketches.release import SparseRelease
from beam_dp.reports.about import Told, noise_section
from beam_dp.reports.cells import Counts
from beam_dp.reports.markup import paragraph, section, text


def report_sparse_release(release: SparseRelease, _: Counts | None) -> Told:
    """Returns the sections about the queries that it answers and about the noise."""
    histogram = release.histogram
    words = (
        f"It answers sums over up to {release.max_sparsity:,} keys of a huge universe, with values"
        " from 0 to 1. Keys are hashed: nobody can list them from the release."
    )
    held = (
        "" if histogram is None else f"{len(histogram.elements):,} keys have a count of their own."
    )
    parts = [paragraph(text(each)) for each in (words, held) if each]
    return Told(
        "Sparse queries", {}, [section("What it answers", *parts), noise_section(release.noise)]
    )
