"""Batches of answers, and the transforms that write them and read them back as rows."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.typehints import Optional  # schemas do not understand ``float | None``

from beam_dp.checks import check_is
from beam_dp.mechanisms.contract import AnswersPlan
from beam_dp.privacy.ledger.entries import Token
from beam_dp.releases.answers.files import write_batch
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.error_bars import FROM_NOISE
from beam_dp.releases.files.commit import check_output
from beam_dp.releases.kinds import commit_release, read_release
from beam_dp.storage.open import store_for
from beam_dp.transforms.job_page import count_committed
from beam_dp.transforms.reading.records import refuse_windows
from beam_dp.transforms.reading.released_rows import ANSWER, Directory, ReleasedRows, Rows
from beam_dp.transforms.writing import take_output

Row = dict[str, Any]


class AnswerBatch(NamedTuple):
    """Answers that were committed together. Public.

    ``number``: the number of the batch in its run, from 0.
    ``num_records``: the public or noisy number of records; None if it is private and not needed.
    ``num_batches``: the number of batches in the run; None for a stream, where it is not known yet.
    """

    run_id: str
    number: int
    num_records: int | None
    answers: list[Row]
    num_batches: int | None = None


# The maximum number of characters per element, and the characters that a row adds to its query.
ELEMENT_TEXT = 2**21
_ROW_TEXT = 512


def answer_batches(run_id: str, num_records: int | None, rows: list[Row]) -> list[AnswerBatch]:
    """Returns all answers of a run, in batches of a few MB; one empty batch without answers."""
    parts = _parts(rows, lambda row: len(row["query"] or "") + _ROW_TEXT) or [[]]
    return [
        AnswerBatch(run_id, number, num_records, part, len(parts))
        for number, part in enumerate(parts)
    ]


def numbered_queries(lines: Sequence[str]) -> list[tuple[int, list[str]]]:
    """Returns queries in numbered lists of a few MB, because a collection has no order."""
    return list(enumerate(_parts(lines, len)))


def _parts(items: Sequence[Any], size: Any) -> list[list[Any]]:
    """Splits items into lists of at least one item and at most ``ELEMENT_TEXT`` characters."""
    parts: list[list[Any]] = []
    size_of = ELEMENT_TEXT
    for item in items:
        if size_of + size(item) > ELEMENT_TEXT:
            parts.append([])
            size_of = 0
        parts[-1].append(item)
        size_of += size(item)
    return parts


def each_query(elements: Iterable[Any]) -> Iterator[Any]:
    """Yields queries given as single queries and lists; numbered lists come first, by number."""
    others: list[Any] = []
    numbered: list[tuple[int, list[Any]]] = []
    for element in elements:
        (numbered if _is_numbered(element) else others).append(element)
    for _, queries in sorted(numbered, key=lambda element: element[0]):
        yield from queries
    for element in others:
        if isinstance(element, Sequence) and not isinstance(element, str | bytes):
            yield from element
        else:
            yield element


def _is_numbered(element: Any) -> bool:
    return (
        isinstance(element, tuple)
        and len(element) == 2
        and isinstance(element[0], int)
        and isinstance(element[1], list)
    )


class WriteAnswers(beam.PTransform):
    """Writes the answers of ``AnswerQueries`` or ``AnswerWorkload``.

    Answers to bounded queries become one release, ``answers-*.avro`` and ``card.json``: the first
    complete run wins, as in ``WriteRelease``. Answers to a stream become one file per batch. A file
    appears complete and only once: of two attempts at the same batch, the first is kept. The files
    of a stream are numbered within their run, without gaps once the run has ended.

    Args:
        directory: a local directory that every worker can access, ``gs://BUCKET/FOLDER``
            or ``s3://BUCKET/FOLDER``. For bounded queries, the directory must be empty or not exist
            yet. For a stream, it may contain files of the same stream.
        plan: the plan of the answers.
        ledger_token: the token that paid for the answers; the card then names the ledger entry.
        state_number: the number of the saved state from which the run was resumed; the card then
            names the number, because one ledger entry then has several cards.

    Raises:
        InputError: if the directory is not writable, or the token paid for another plan; when
            applied, if another transform of the pipeline writes to the directory, or if answers are
            bounded and windowed, or bounded and the directory is not empty.

    Output: the directory, once per release or batch file written.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        plan: AnswersPlan,
        ledger_token: Token | None = None,
        state_number: int | None = None,
    ) -> None:
        super().__init__()
        check_is("plan", plan, AnswersPlan)
        store_for(directory, "output")
        self.directory = os.fspath(directory)
        self.plan = plan.paid_by(ledger_token)
        self.state_number = state_number

    def expand(self, batches: beam.PCollection[AnswerBatch]) -> beam.PCollection[str]:
        """Checks the directory, then writes the answers."""
        if batches.is_bounded:
            refuse_windows(batches)
        take_output(batches.pipeline, self.directory)
        if not batches.is_bounded:
            write = beam.ParDo(_WriteBatch(self.directory))
            return batches | "Write batches" >> write.with_output_types(str)
        check_output(self.directory)
        write = beam.ParDo(_WriteRun(self.directory, self.plan, self.state_number))
        return (
            batches
            | "By run" >> beam.Map(_by_run).with_output_types(tuple[str, AnswerBatch])
            | "Group batches" >> beam.GroupByKey()
            | "Write answers" >> write.with_output_types(str)
        )


def _by_run(batch: AnswerBatch) -> tuple[str, AnswerBatch]:
    return batch.run_id, batch


@dataclasses.dataclass(eq=False, repr=False)
class _WriteRun(beam.DoFn):
    directory: str
    plan: AnswersPlan
    state_number: int | None

    def process(self, run: tuple[str, Iterable[AnswerBatch]]) -> Iterator[str]:
        run_id, batches = run
        by_number = {batch.number: batch for batch in batches}
        first = next(iter(by_number.values()))
        # A run with missing batches is skipped.
        if len(by_number) == first.num_batches:
            card = self.plan.card(first.num_records)
            if self.state_number is not None:
                card["ledger_state"] = self.state_number
            rows = [row for number in sorted(by_number) for row in by_number[number].answers]
            release = AnswersRelease(
                draw_id=run_id, guarantee=self.plan.guarantee, rows=rows, stated=card
            )
            commit_release(release, self.directory)
            count_committed(self.directory)
            yield self.directory


class _WriteBatch(beam.DoFn):
    def __init__(self, directory: str) -> None:
        self.directory = directory

    def process(self, batch: AnswerBatch) -> Iterator[str]:
        write_batch(batch.answers, batch.run_id, batch.number, self.directory)
        yield self.directory


class AnswerRows(ReleasedRows):
    """Returns released answers to queries as rows with a schema.

    The rows are post-processing of the release, as those of ``MarginalRows``.

    Args:
        directory: the directory of existing answers; None for answers that the pipeline writes.

    Raises:
        InputError: when applied, if the answers are a stream, which has no committed release.
        ReleaseError: if the release is missing, damaged, or does not contain answers.

    Input: the start of a pipeline if a directory is given; otherwise the directories that
    ``WriteAnswers`` returns, which all workers must be able to access.

    Output: one ``beam.Row`` per query, in any order: ``id`` (None if the query has none), ``query``
    (as JSON), and the fields of ``MarginalRows``. ``error`` is "from the noise alone" if the
    answer has noise of its own, else None. For a refused query, ``value`` is None and ``reason`` is
    the error.

    Example:
        >>> rows = answers | WriteAnswers("out/answers", plan) | AnswerRows()  # doctest: +SKIP
    """

    def __init__(self, directory: Directory | None = None) -> None:
        if directory is not None:
            read_release(directory, kind=AnswersRelease)
        fields = {"id": Optional[str], "query": str, **ANSWER, "value": Optional[float]}
        super().__init__(directory, fields, _answer_values)


def _answer_values(directory: str) -> Rows:
    release = read_release(directory, kind=AnswersRelease)
    for row in release.rows:
        value, error, bound = row["value"], row["standard_error"], row["bound"]
        kind = None if error is None else FROM_NOISE
        yield row["id"], row["query"], value, error, bound, kind, row["error"], release.draw_id
