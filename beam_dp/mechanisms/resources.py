"""Rough estimates of the memory and time of a mechanism, from public sizes.

Rates were measured on one core of a common x86-64 machine, relative to the sizes that a mechanism's
cost grows with. They are good to an order of magnitude: how often a fit or a search iterates
depends on the noise and on the data. They are for the mechanism, on one worker; counting the
records takes about as long as reading their files, see ``benchmarks/results/distributed_pass.md``.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Protocol

# Beam and the readers, which a mechanism alone does not import.
_BEAM_BYTES = 190e6
# For a cell of the exact summary: its shards, the array, and a table summed from it.
_SUMMARY_BYTES = 24
# Rounding reveals less, and lets two similar jobs ask for the same.
_STEP_BYTES = 2**28
# The interpreter with the libraries that a mechanism needs, without Beam.
_BASE_BYTES = 110e6
_BASE_SECONDS = 0.02
# For each cell of the hypothesis of a maximum-entropy fit, of which about 20 arrays exist.
_FIT_SECONDS = 6e-6
_FIT_BYTES = 160
# For each cell of a measured table: noise, and its coefficients.
_MEASURED_SECONDS = 2e-5
_MEASURED_BYTES = 64
# For each cell of a multiplicative update, and for each query of a round's scores.
_UPDATE_SECONDS = 9e-7
_ROUND_SECONDS = 4e-3
# For each question to online multiplicative weights, and for each cell of the tables that it is
# summed from; a query concerns a part of them.
_QUESTION_SECONDS = 8e-5
_QUESTION_CELL_SECONDS = 2e-10
_HYPOTHESIS_BYTES = 40
# For each multiset and query of an enumeration, each bit of a product of polynomials, and each cell
# of a query matrix.
_COMPARISON_SECONDS = 1.5e-9
_PRODUCT_SECONDS = 3e-9
_MATRIX_BYTES = 32
# For each noisy answer, and each cell that an explicit query is summed over.
_ANSWER_SECONDS = 4e-5
_SUMMED_SECONDS = 5e-10

# For each leaf of interval counts (planning, noise, least squares), and each of the up to 1,024
# blocks over which windows are optimised.
_LEAF_SECONDS = 1.2e-5
_LEAF_BYTES = 700
# For each cell of a projection: its sums, noise, and the file that is written.
_SKETCH_BYTES = 80
_BLOCK_SECONDS = 2e-3
_MAX_BLOCKS = 1024


@dataclasses.dataclass(frozen=True)
class Resources:
    """The resources of a mechanism on one worker, to an order of magnitude."""

    memory_bytes: float
    seconds: float


def fit_resources(hypothesis_cells: float, measured_cells: float) -> Resources:
    """Returns the resources to measure tables and fit a hypothesis to them."""
    return Resources(
        _BASE_BYTES + _FIT_BYTES * hypothesis_cells + _MEASURED_BYTES * measured_cells,
        _BASE_SECONDS + _FIT_SECONDS * hypothesis_cells + _MEASURED_SECONDS * measured_cells,
    )


def rounds_resources(num_cells: float, num_rounds: int) -> Resources:
    """Returns the resources of the published MWEM, with one update of every cell a round."""
    return Resources(
        _BASE_BYTES + _FIT_BYTES * num_cells,
        _BASE_SECONDS + num_rounds * (_ROUND_SECONDS + _UPDATE_SECONDS * num_cells),
    )


def online_resources(num_cells: float, num_questions: int, max_updates: int) -> Resources:
    """Returns the resources to answer questions one at a time, if all updates are used."""
    updates = min(max_updates, num_questions)
    questions = num_questions * (_QUESTION_SECONDS + _QUESTION_CELL_SECONDS * num_cells)
    return Resources(
        _BASE_BYTES + _HYPOTHESIS_BYTES * num_cells,
        _BASE_SECONDS + questions + updates * _UPDATE_SECONDS / 100 * num_cells,
    )


def enumeration_resources(num_multisets: float, num_queries: int, matrix_values: int) -> Resources:
    """Returns the resources to draw one of all multisets by enumeration."""
    return Resources(
        _BASE_BYTES + _MATRIX_BYTES * matrix_values,
        _BASE_SECONDS + _COMPARISON_SECONDS * num_multisets * (num_queries + 16),
    )


def nested_resources(num_products: int, product_bits: float, matrix_values: int) -> Resources:
    """Returns the resources to draw a multiset for nested queries, by products of polynomials."""
    return Resources(
        _BASE_BYTES + _MATRIX_BYTES * matrix_values + num_products * product_bits / 8,
        _BASE_SECONDS + _PRODUCT_SECONDS * num_products * product_bits,
    )


def answers_resources(num_cells: float, num_queries: int) -> Resources:
    """Returns the resources to answer linear queries with separate noise."""
    return Resources(
        _BASE_BYTES + 16 * num_cells + 64 * num_queries,
        _BASE_SECONDS + num_queries * (_ANSWER_SECONDS + _SUMMED_SECONDS * num_cells),
    )


def intervals_resources(num_leaves: int) -> Resources:
    """Returns the resources to plan, measure and estimate all intervals of an attribute."""
    optimising = _BLOCK_SECONDS * min(num_leaves, _MAX_BLOCKS)
    return Resources(
        _BASE_BYTES + _LEAF_BYTES * num_leaves,
        _BASE_SECONDS + optimising + _LEAF_SECONDS * num_leaves,
    )


def choice_bytes(num_queries: int, num_cells: int, nested_size: int = 0) -> float:
    """Returns the most memory that choosing a small database takes, without planning it.

    ``nested_size``: the number of records if they are drawn by products of polynomials, else 0.
    """
    # A product has at most the bits of the number of multisets, times its length.
    matrix = _MATRIX_BYTES * num_queries * num_cells
    products = (num_queries + 1) ** 2 * (nested_size + 1)
    bits = nested_size * math.log2(num_cells + nested_size + 1) * (nested_size + 1)
    return _BASE_BYTES + matrix + products * bits / 8


def sketch_bytes(projection_width: int) -> float:
    """Returns the memory for the noise and the files of a projection."""
    return _BASE_BYTES + _SKETCH_BYTES * projection_width


class _Sized(Protocol):
    """A plan whose memory is known."""

    @property
    def memory_bytes(self) -> float: ...


def worker_bytes(plan: _Sized, summary_cells: int) -> int:
    """Returns the memory to request from a runner for a mechanism, a multiple of 2^28 bytes.

    It depends on public sizes alone, because requests appear in the job's graph. Beam's flag
    ``--resource_hints=min_ram=64GB`` asks for more: a runner takes the larger of the two.

    ``summary_cells``: the size of the exact summary; 0 for counts of keys (``StabilityHistogram``,
    ``HybridSketch``, ``sparse_mw``), whose private number is left out: 16 bytes each in addition.

    Example:
        >>> from beam_dp import Guarantee
        >>> from beam_dp.mechanisms.intervals.plan import plan_intervals
        >>> plan = plan_intervals(16, Guarantee(1.0, 0.0, "replace_one", "record", 1))
        >>> worker_bytes(plan, 16) // 2**20
        512
    """
    needed = _BEAM_BYTES + _SUMMARY_BYTES * summary_cells + plan.memory_bytes
    return math.ceil(needed / _STEP_BYTES) * _STEP_BYTES
