"""Releases: public values that may be copied and queried at no further privacy cost."""

from beam_dp.releases.answers import AnswersRelease as AnswersRelease
from beam_dp.releases.differences import (
    CellDifference as CellDifference,
    compare_releases as compare_releases,
)
from beam_dp.releases.files.card import ReleaseError as ReleaseError
from beam_dp.releases.files.commit import check_output as check_output
from beam_dp.releases.files.horizon import (
    Released as Released,
    begin_horizon as begin_horizon,
    block_directory as block_directory,
    holds_horizon as holds_horizon,
    read_horizon as read_horizon,
    read_windows as read_windows,
    released as released,
    window_directory as window_directory,
)
from beam_dp.releases.files.horizon_card import HorizonCard as HorizonCard
from beam_dp.releases.files.kinds import (
    commit_release as commit_release,
    read_release as read_release,
    release_from_bytes as release_from_bytes,
    release_to_bytes as release_to_bytes,
    write_release as write_release,
)
from beam_dp.releases.files.leftovers import (
    finish_each as finish_each,
    finish_writing as finish_writing,
)
from beam_dp.releases.files.probe import probe_output as probe_output
from beam_dp.releases.horizon import HorizonRelease as HorizonRelease
from beam_dp.releases.intervals import (
    IntervalAnswers as IntervalAnswers,
    IntervalRelease as IntervalRelease,
)
from beam_dp.releases.records import distinct_records as distinct_records
from beam_dp.releases.release import Release as Release
from beam_dp.releases.released_answers import (
    MarginalAnswer as MarginalAnswer,
    QueryAnswer as QueryAnswer,
)
from beam_dp.releases.sketches import (
    NoisyCounts as NoisyCounts,
    NoisySketch as NoisySketch,
    SparseAnswer as SparseAnswer,
    SparseRelease as SparseRelease,
)
from beam_dp.releases.synthetic_database import SyntheticDatabase as SyntheticDatabase
from beam_dp.releases.window_tables import WindowTables as WindowTables
