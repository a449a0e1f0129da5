"""Rough estimates of the memory and time of a mechanism, from public sizes.

Rates were measured on one core of a common x86-64 machine, per unit of a size that determines the
cost. Estimates are correct to an order of magnitude: the number of iterations of a fit or a search
depends on the noise and on the data. ``Resources`` cover the mechanism on one worker;
``release_resources`` also covers reading Parquet files and writing synthetic records.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Protocol

from beam_dp.domain.attributes import Attribute
from beam_dp.domain.ordered import OrderedAttribute
from beam_dp.domain.universe import Domain

# Beam and the readers of input files, which a mechanism alone does not import.
_BEAM_BYTES = 190e6
# Per cell of the exact summary: the cell's shards, the array, and a table summed from the array.
_SUMMARY_BYTES = 24
# Memory requests are rounded up to a multiple of this, so that similar jobs request equal amounts.
_STEP_BYTES = 2**28
# The interpreter and the libraries that a mechanism needs, without Beam.
_BASE_BYTES = 110e6
_BASE_SECONDS = 0.02
# Per cell of the hypothesis of a maximum-entropy fit, which keeps about 20 arrays of this size.
_FIT_SECONDS = 4.2e-6
_FIT_BYTES = 160
# Per candidate record: drawing, fitting and rounding.
_CANDIDATE_SECONDS = 8e-6
# Per cell of a measured table: noise and coefficients.
_MEASURED_SECONDS = 2e-5
_MEASURED_BYTES = 64
# Per cell of a multiplicative update, and per round for the scores of the queries.
_UPDATE_SECONDS = 9e-7
_ROUND_SECONDS = 4e-3
# Per question to online multiplicative weights, and per question and cell of the domain; a query
# concerns only a part of the cells.
_QUESTION_SECONDS = 8e-5
_QUESTION_CELL_SECONDS = 2e-10
_HYPOTHESIS_BYTES = 40
# Per pair of a multiset and a query in an enumeration, per bit of a product of polynomials, and per
# value of a query matrix.
_COMPARISON_SECONDS = 1.5e-9
_PRODUCT_SECONDS = 3e-9
_MATRIX_BYTES = 32
# Per noisy answer, and per cell that an explicit query sums.
_ANSWER_SECONDS = 4e-5
_SUMMED_SECONDS = 5e-10

# Of a value in a compressed file, and of a number or time in CSV.
_PACKED_BYTES, _NUMBER_BYTES = 8, 20
# The start of Beam and of a program; per record read from Parquet; per value written; and, in
# addition, per value written within a bin.
_JOB_SECONDS = 2.5
_READ_SECONDS = 2e-8
_WRITTEN_SECONDS = 4.5e-8
_DRAWN_SECONDS = 1e-7
# Per distinct record, with its encoded form, in the program that draws and writes.
_DISTINCT_BYTES = 600

# Per leaf of interval counts, for planning, noise and least squares; and per block, for optimising
# the ``windows`` strategy with up to 1,024 blocks.
_LEAF_SECONDS = 1.2e-5
_LEAF_BYTES = 700
# Per cell of a projection: sums, noise, and the output file.
_SKETCH_BYTES = 80
_BLOCK_SECONDS = 2e-3
_MAX_BLOCKS = 1024


@dataclasses.dataclass(frozen=True)
class Resources:
    """The resources of a mechanism on one worker, to an order of magnitude."""

    memory_bytes: float
    seconds: float


def fit_resources(hypothesis_cells: float, measured_cells: float) -> Resources:
    """Returns the resources for measuring tables and fitting a hypothesis to the tables."""
    return Resources(
        _BASE_BYTES + _FIT_BYTES * hypothesis_cells + _MEASURED_BYTES * measured_cells,
        _BASE_SECONDS + _FIT_SECONDS * hypothesis_cells + _MEASURED_SECONDS * measured_cells,
    )


def candidate_resources(
    num_candidates: float, most_cells: float, measured_cells: float
) -> Resources:
    """Returns the resources for measuring tables and fitting weights of candidate records.

    ``num_candidates``: the usual number of distinct candidates, which determines the time.
    ``most_cells``: the largest hypothesis that a draw may fit, which determines the memory.
    """
    memory_bytes = fit_resources(most_cells, measured_cells).memory_bytes
    seconds = fit_resources(0, measured_cells).seconds + _CANDIDATE_SECONDS * num_candidates
    return Resources(memory_bytes, seconds)


def release_resources(
    mechanism: Resources,
    num_records: float,
    num_distinct: float,
    num_attributes: int,
    num_binned: int,
) -> Resources:
    """Returns the resources of a job in one process, from Parquet files to synthetic records.

    ``num_distinct``: the largest number of distinct records that are written.
    ``num_binned``: the number of attributes whose values are drawn within bins.

    Example:
        >>> round(release_resources(fit_resources(12_096, 3_982), 2e8, 12_096, 5, 0).seconds)
        52
    """
    written = num_attributes * _WRITTEN_SECONDS + num_binned * _DRAWN_SECONDS
    return Resources(
        _BEAM_BYTES + mechanism.memory_bytes + _DISTINCT_BYTES * num_distinct,
        _JOB_SECONDS + mechanism.seconds + num_records * (_READ_SECONDS + written),
    )


def records_bytes(domain: Domain, num_rows: float, records_format: str = "csv") -> float:
    """Returns about the most that a file of released records takes, from public sizes."""

    def of_value(attribute: Attribute) -> int:
        if records_format != "csv":
            return _PACKED_BYTES
        if isinstance(attribute, OrderedAttribute):
            return _NUMBER_BYTES
        levels = attribute.decode(range(attribute.size))
        return 3 + max(len(str(level).encode()) for level in levels)

    return num_rows * sum(map(of_value, domain))


def rounds_resources(num_cells: float, num_rounds: int) -> Resources:
    """Returns the resources for the published MWEM, which updates every cell once per round."""
    return Resources(
        _BASE_BYTES + _FIT_BYTES * num_cells,
        _BASE_SECONDS + num_rounds * (_ROUND_SECONDS + _UPDATE_SECONDS * num_cells),
    )


def online_resources(num_cells: float, num_questions: int, max_updates: int) -> Resources:
    """Returns the resources for answering questions one at a time, if all updates are used."""
    updates = min(max_updates, num_questions)
    questions = num_questions * (_QUESTION_SECONDS + _QUESTION_CELL_SECONDS * num_cells)
    return Resources(
        _BASE_BYTES + _HYPOTHESIS_BYTES * num_cells,
        _BASE_SECONDS + questions + updates * _UPDATE_SECONDS / 100 * num_cells,
    )


def enumeration_resources(num_multisets: float, num_queries: int, matrix_values: int) -> Resources:
    """Returns the resources for drawing one multiset by enumerating all multisets."""
    return Resources(
        _BASE_BYTES + _MATRIX_BYTES * matrix_values,
        _BASE_SECONDS + _COMPARISON_SECONDS * num_multisets * (num_queries + 16),
    )


def nested_resources(num_products: int, product_bits: float, matrix_values: int) -> Resources:
    """Returns the resources for drawing a multiset for nested queries, by polynomial products."""
    return Resources(
        _BASE_BYTES + _MATRIX_BYTES * matrix_values + num_products * product_bits / 8,
        _BASE_SECONDS + _PRODUCT_SECONDS * num_products * product_bits,
    )


def answers_resources(num_cells: float, num_queries: int) -> Resources:
    """Returns the resources for answering linear queries with separate noise."""
    return Resources(
        _BASE_BYTES + 16 * num_cells + 64 * num_queries,
        _BASE_SECONDS + num_queries * (_ANSWER_SECONDS + _SUMMED_SECONDS * num_cells),
    )


def intervals_resources(num_leaves: int) -> Resources:
    """Returns the resources for planning, measuring and estimating the counts of all intervals."""
    optimising = _BLOCK_SECONDS * min(num_leaves, _MAX_BLOCKS)
    return Resources(
        _BASE_BYTES + _LEAF_BYTES * num_leaves,
        _BASE_SECONDS + optimising + _LEAF_SECONDS * num_leaves,
    )


def choice_bytes(num_queries: int, num_cells: int, nested_size: int = 0) -> float:
    """Returns the largest memory for choosing a small database, without the memory for planning.

    ``nested_size``: the number of records if the nested sampler draws the database, else 0.
    """
    # A product has at most its length times the number of bits of the number of multisets.
    matrix = _MATRIX_BYTES * num_queries * num_cells
    products = (num_queries + 1) ** 2 * (nested_size + 1)
    bits = nested_size * math.log2(num_cells + nested_size + 1) * (nested_size + 1)
    return _BASE_BYTES + matrix + products * bits / 8


def sketch_bytes(projection_width: int) -> float:
    """Returns the memory for the noise and the files of a projection."""
    return _BASE_BYTES + _SKETCH_BYTES * projection_width


class _Sized(Protocol):
    """A plan that states how much memory it needs."""

    @property
    def memory_bytes(self) -> float: ...


def worker_bytes(plan: _Sized, summary_cells: int) -> int:
    """Returns the memory to request from a runner for a mechanism, a multiple of 2^28 bytes.

    The result depends only on public sizes, because requests appear in the job's graph. Beam's flag
    ``--resource_hints=min_ram=64GB`` can request more: a runner uses the larger request.

    ``summary_cells``: the size of the exact summary; 0 for counts of keys (``StabilityHistogram``,
    ``HybridSketch``, ``sparse_mw``): the number of keys is private, and each key adds 16 bytes.
    """
    needed = _BEAM_BYTES + _SUMMARY_BYTES * summary_cells + plan.memory_bytes
    return math.ceil(needed / _STEP_BYTES) * _STEP_BYTES
