"""Every program as a small job, with the number of files in its release."""

import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jobs import answer_flags, interval_flags, job_flags, key_flags
from program_jobs import sparse_answers, texts

from pipelines import (
    answer_queries,
    release_intervals,
    release_projection,
    release_synthetic_database,
)


class Program(NamedTuple):
    """A program, and the flags of a small job in a folder, whose output is the folder's ``out``."""

    main: Callable[[Sequence[str]], int]
    flags: Callable[[pathlib.Path], list[str]]
    num_files: int


PROGRAMS = {
    "release_synthetic_database": Program(
        release_synthetic_database.main, lambda folder: job_flags(folder, num_records="500"), 4
    ),
    "release_projection": Program(
        release_projection.main, lambda folder: key_flags(folder, size="65536"), 3
    ),
    "release_intervals": Program(release_intervals.main, interval_flags, 2),
    "answer_queries, private_mw": Program(answer_queries.main, answer_flags, 2),
    "answer_queries, sparse_mw": Program(
        answer_queries.main, lambda folder: texts(sparse_answers(folder)), 2
    ),
    "answer_queries, laplace": Program(
        answer_queries.main, lambda folder: answer_flags(folder, mechanism="laplace"), 2
    ),
}
