"""What leaves the house: releases, that may be copied and queried at no further privacy cost."""

from beam_dp.releases.card import Card, ReleaseError
from beam_dp.releases.records import distinct_records
from beam_dp.releases.sparse import NoisyCounts, NoisySketch, SparseAnswer, SparseRelease
from beam_dp.releases.store import check_output, commit_release, read_release, write_release
from beam_dp.releases.synthetic_database import MarginalAnswer, QueryAnswer, SyntheticDatabase

__all__ = [
    "Card",
    "MarginalAnswer",
    "NoisyCounts",
    "NoisySketch",
    "QueryAnswer",
    "ReleaseError",
    "SparseAnswer",
    "SparseRelease",
    "SyntheticDatabase",
    "check_output",
    "commit_release",
    "distinct_records",
    "read_release",
    "write_release",
]
