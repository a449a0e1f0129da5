"""The Beam layer: thin stages around the folders that know no Beam."""

from beam_dp.transforms.counting.encode import EncodeRecords
from beam_dp.transforms.counting.encode_keys import KeyColumns
from beam_dp.transforms.counting.limit_contributions import LimitContributions
from beam_dp.transforms.counting.summarise import Summarise
from beam_dp.transforms.drawing.answer_queries import AnswerQueries
from beam_dp.transforms.drawing.answer_sparse import AnswerSparseQueries
from beam_dp.transforms.drawing.answer_workload import AnswerWorkload
from beam_dp.transforms.drawing.release import ReleaseSyntheticDatabase
from beam_dp.transforms.drawing.release_intervals import ReleaseIntervals
from beam_dp.transforms.drawing.release_projection import ReleaseProjection
from beam_dp.transforms.elements import AnswerBatch
from beam_dp.transforms.errors import PrivateStepError, ReadError, SetupError
from beam_dp.transforms.reading.read import ReadRecords
from beam_dp.transforms.writing.write import WriteRelease
from beam_dp.transforms.writing.write_answers import WriteAnswers

BoundContributions = LimitContributions  # its name until 0.1

__all__ = [
    "AnswerBatch",
    "AnswerQueries",
    "AnswerSparseQueries",
    "AnswerWorkload",
    "BoundContributions",
    "EncodeRecords",
    "KeyColumns",
    "LimitContributions",
    "PrivateStepError",
    "ReadError",
    "ReadRecords",
    "ReleaseIntervals",
    "ReleaseProjection",
    "ReleaseSyntheticDatabase",
    "SetupError",
    "Summarise",
    "WriteAnswers",
    "WriteRelease",
]
