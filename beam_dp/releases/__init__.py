"""Releases: public values that may be copied and queried at no further privacy cost."""

from beam_dp.releases.answers import AnswersRelease
from beam_dp.releases.files.card import ReleaseError
from beam_dp.releases.files.commit import check_output
from beam_dp.releases.files.kinds import (
    commit_release,
    read_release,
    release_from_bytes,
    release_to_bytes,
    write_release,
)
from beam_dp.releases.files.leftovers import finish_writing
from beam_dp.releases.files.probe import probe_output
from beam_dp.releases.intervals import IntervalAnswers, IntervalRelease
from beam_dp.releases.records import distinct_records
from beam_dp.releases.release import Release
from beam_dp.releases.sketches import NoisyCounts, NoisySketch, SparseAnswer, SparseRelease
from beam_dp.releases.synthetic_database import MarginalAnswer, QueryAnswer, SyntheticDatabase

__all__ = [
    "AnswersRelease",
    "IntervalAnswers",
    "IntervalRelease",
    "MarginalAnswer",
    "NoisyCounts",
    "NoisySketch",
    "QueryAnswer",
    "Release",
    "ReleaseError",
    "SparseAnswer",
    "SparseRelease",
    "SyntheticDatabase",
    "check_output",
    "commit_release",
    "distinct_records",
    "finish_writing",
    "probe_output",
    "read_release",
    "release_from_bytes",
    "release_to_bytes",
    "write_release",
]
