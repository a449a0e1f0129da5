"""The Beam layer: thin transforms around the Beam-free packages, imported at first use."""

from typing import TYPE_CHECKING, Any

from beam_dp.installed import from_home, homes_of

if TYPE_CHECKING:
    from beam_dp.transforms.answers import (
        AnswerBatch as AnswerBatch,
        AnswerRows as AnswerRows,
        WriteAnswers as WriteAnswers,
    )
    from beam_dp.transforms.counting.limit_contributions import (
        LimitContributions as LimitContributions,
    )
    from beam_dp.transforms.counting.summarise import (
        EncodeRecords as EncodeRecords,
        Summarise as Summarise,
    )
    from beam_dp.transforms.drawing.answer_queries import (
        AnswerQueries as AnswerQueries,
        AnswerSparseQueries as AnswerSparseQueries,
        AnswerWorkload as AnswerWorkload,
    )
    from beam_dp.transforms.drawing.release import (
        ReleaseDomain as ReleaseDomain,
        ReleaseSyntheticDatabase as ReleaseSyntheticDatabase,
    )
    from beam_dp.transforms.intervals import (
        IntervalRows as IntervalRows,
        ReleaseIntervals as ReleaseIntervals,
    )
    from beam_dp.transforms.job_page import (
        PrivateStepError as PrivateStepError,
        ReadError as ReadError,
        SetupError as SetupError,
    )
    from beam_dp.transforms.reading.read import ReadRecords as ReadRecords
    from beam_dp.transforms.reading.read_arrivals import ReadArrivals as ReadArrivals
    from beam_dp.transforms.reading.read_kafka import ReadKafka as ReadKafka
    from beam_dp.transforms.reading.released_rows import (
        MarginalRows as MarginalRows,
        SyntheticRows as SyntheticRows,
    )
    from beam_dp.transforms.sketches import (
        KeyColumns as KeyColumns,
        ReleaseProjection as ReleaseProjection,
    )
    from beam_dp.transforms.windows import (
        ReleaseWindows as ReleaseWindows,
        WindowRows as WindowRows,
        begin_windows as begin_windows,
    )
    from beam_dp.transforms.writing import WriteRelease as WriteRelease

_HOMES = homes_of(__file__)


def __getattr__(name: str) -> Any:
    return from_home(__name__, _HOMES, name)
