"""Sparse online multiplicative weights as one step of a pipeline."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.transforms.window import GlobalWindows

from beam_dp.checks import check_is
from beam_dp.encoding.batch import KeyWords
from beam_dp.errors import InputError
from beam_dp.hashing.elements import universe_elements
from beam_dp.hashing.keys import HashKey
from beam_dp.mechanisms.online.log import answer_line
from beam_dp.mechanisms.online.sparse_mw import SparseMW, SparseMWPlan
from beam_dp.mechanisms.resources import worker_bytes
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.ledger.entries import Token
from beam_dp.queries.sparse import Element
from beam_dp.queries.sparse_reader import SparseQueries
from beam_dp.summaries.element_counts import ElementCounts, KeyCounts
from beam_dp.transforms.counting.encode import EncodeKeys, KeyColumns
from beam_dp.transforms.counting.limit_contributions import limited
from beam_dp.transforms.counting.summarise import CountElements, counts_of_shards
from beam_dp.transforms.drawing.one_worker import draw_once
from beam_dp.transforms.elements import AnswerBatch, answer_batches, each_query
from beam_dp.transforms.reading.records import refuse_windows

# Fingerprints need no more of their key than its sixteen bytes.
_INDEPENDENCE = 1


class AnswerSparseQueries(beam.PTransform):
    """Answers sparse queries about the keys of records, one at a time: ``mechanisms.SparseMW``.

    Privacy: all answers of one job together satisfy ``plan.guarantee``, as those of
    ``AnswerQueries``, for records whose unit is ``plan.guarantee.privacy_unit``. Each record counts
    for one key. The counts of keys are computed as in ``ReleaseProjection``, and are as secret as
    the records; the one step that answers gets them as a side input. Everything it says has one
    random ``run_id``, and ``WriteAnswers`` commits one run.

    Args:
        plan: from ``plan_sparse_mw``.
        columns: the column of keys; without weights.
        records: Arrow batches (``ReadRecords``), frames of pandas, dicts, rows; bounded.
        ledger_token: from ``Ledger.spend``, for just this run.

    Raises:
        InputError: if there are weights, or the token paid for something else; when applied, if
            the records are windowed or unbounded or lack a column, or the queries are unbounded.

    Input: queries, each a line of JSON or a dict ``{"sparse": {...}}``, with an ``id`` if it likes;
    or lists of them, as of ``AnswerQueries``.

    Output: ``AnswerBatch`` elements of a few MB. A query that is refused gets a row with an
    ``error``, spends nothing, and stops nothing.

    Cost: 16 bytes a distinct key of the records in the memory of one worker; about 5 microseconds
    an element of a query.
    """

    def __init__(
        self,
        plan: SparseMWPlan,
        columns: KeyColumns,
        records: beam.PCollection[Any],
        ledger_token: Token | None = None,
    ) -> None:
        super().__init__()
        check_is("plan", plan, SparseMWPlan)
        check_is("columns", columns, KeyColumns)
        if columns.weight is not None:
            raise InputError("weight", columns.weight, "must not be given: records are counted")
        self.plan = plan.paid_by(ledger_token)
        self.columns = columns
        self.records = records
        self.hash_key = HashKey.draw(_INDEPENDENCE)

    def expand(self, queries: beam.PCollection[Any]) -> beam.PCollection[AnswerBatch]:
        """Counts the keys, then answers."""
        if not queries.is_bounded:
            raise InputError("queries", "an unbounded collection", "must be bounded for sparse_mw")
        refuse_windows(self.records)
        guarantee = self.plan.guarantee
        encode = EncodeKeys(self.columns, 1, self.hash_key, guarantee.privacy_unit)
        encoded = self.records | "Encode" >> encode
        keys = limited(encoded, KeyWords(), guarantee, unit_costs=self.plan.unit_costs)
        shards = keys | "Count" >> CountElements()
        everything = queries | "To one window" >> beam.WindowInto(GlobalWindows())
        reader = SparseQueries(self.columns.key_type, self.plan.max_sparsity, self.hash_key)
        answers = functools.partial(_answers, self.plan, reader)
        sides, min_ram = [everything, shards], worker_bytes(self.plan, 0)
        return draw_once(queries.pipeline, answers, sides, min_ram, AnswerBatch)


def _answers(
    plan: SparseMWPlan,
    reader: SparseQueries,
    noise: NoiseSource,
    lines: Iterable[Any],
    shards: Iterable[bytes],
) -> list[AnswerBatch]:
    counts = _CountsByFingerprint(counts_of_shards(shards), reader.hash_key)
    run = SparseMW(plan, KeyCounts(counts), noise)
    rows = [answer_line(run, reader, line)[0] for line in each_query(lines)]
    return answer_batches(noise.draw_id(), run.settings.total, rows)


class _CountsByFingerprint(Mapping[Element, int]):
    """Counts of elements, looked up by their fingerprints; an integer is its own. Secret."""

    def __init__(self, counts: ElementCounts, hash_key: HashKey) -> None:
        self._elements = counts.elements
        self._counts = counts.counts
        self._hash_key = hash_key

    def __repr__(self) -> str:
        return "_CountsByFingerprint(secret)"

    def __getitem__(self, element: Element) -> int:
        (fingerprint,) = universe_elements([element], self._hash_key)
        place = int(np.searchsorted(self._elements, fingerprint))
        if place == len(self._elements) or self._elements[place] != fingerprint:
            raise KeyError
        return int(self._counts[place])

    def __iter__(self) -> Iterator[Element]:
        return iter(self._elements.tolist())

    def __len__(self) -> int:
        return len(self._elements)
