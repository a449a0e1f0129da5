"""The transform that writes answers: as one release, or in batches from a stream."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator

import apache_beam as beam

from beam_dp.checks import check_is
from beam_dp.mechanisms.contract import AnswersPlan
from beam_dp.privacy.ledger.entries import Token
from beam_dp.releases.answers.files import write_batch
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.files.commit import check_output
from beam_dp.releases.kinds import commit_release
from beam_dp.storage.open import store_for
from beam_dp.transforms.drawing.one_worker import AnswerBatch
from beam_dp.transforms.job_page import count_committed
from beam_dp.transforms.reading.records import refuse_windows
from beam_dp.transforms.writing import take_output


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
