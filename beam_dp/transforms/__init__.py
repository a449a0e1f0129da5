"""The Beam layer: one file a stage, each a few lines around the folders above."""

from beam_dp.transforms.answer_batches import AnswerBatch
from beam_dp.transforms.answer_queries import AnswerQueries
from beam_dp.transforms.answer_sparse import AnswerSparseQueries
from beam_dp.transforms.answer_workload import AnswerWorkload
from beam_dp.transforms.bound import BoundContributions
from beam_dp.transforms.encode import EncodeRecords
from beam_dp.transforms.encode_keys import KeyColumns
from beam_dp.transforms.errors import PrivateStepError, ReadError, SetupError
from beam_dp.transforms.read import ReadRecords
from beam_dp.transforms.release import ReleaseSyntheticDatabase
from beam_dp.transforms.release_intervals import ReleaseIntervals
from beam_dp.transforms.release_projection import ReleaseProjection
from beam_dp.transforms.summarise import Summarise
from beam_dp.transforms.write import WriteRelease
from beam_dp.transforms.write_answers import WriteAnswers

__all__ = [
    "AnswerBatch",
    "AnswerQueries",
    "AnswerSparseQueries",
    "AnswerWorkload",
    "BoundContributions",
    "EncodeRecords",
    "KeyColumns",
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
