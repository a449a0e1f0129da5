"""Releases: public values that may be copied and queried at no further privacy cost."""

from beam_dp.releases.answers import AnswersRelease as AnswersRelease
from beam_dp.releases.files.card import ReleaseError as ReleaseError
from beam_dp.releases.files.commit import check_output as check_output
from beam_dp.releases.files.kinds import (
    commit_release as commit_release,
    read_release as read_release,
    release_from_bytes as release_from_bytes,
    release_to_bytes as release_to_bytes,
    write_release as write_release,
)
from beam_dp.releases.files.leftovers import finish_writing as finish_writing
from beam_dp.releases.files.probe import probe_output as probe_output
from beam_dp.releases.intervals import (
    IntervalAnswers as IntervalAnswers,
    IntervalRelease as IntervalRelease,
)
from beam_dp.releases.records import distinct_records as distinct_records
from beam_dp.releases.release import Release as Release
from beam_dp.releases.sketches import (
    NoisyCounts as NoisyCounts,
    NoisySketch as NoisySketch,
    SparseAnswer as SparseAnswer,
    SparseRelease as SparseRelease,
)
from beam_dp.releases.synthetic_database import (
    MarginalAnswer as MarginalAnswer,
    QueryAnswer as QueryAnswer,
    SyntheticDatabase as SyntheticDatabase,
)
