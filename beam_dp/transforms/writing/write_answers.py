"""Transforms that write answers: one run as a release, or a stream by batches."""

from __future__ import annotations

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
from beam_dp.storage.of_url import store_for
from beam_dp.transforms.elements import AnswerBatch
from beam_dp.transforms.reading.records import refuse_windows
from beam_dp.transforms.writing.write_outputs import take_output


class WriteAnswers(beam.PTransform):
    """Writes the answers of ``AnswerQueries`` or ``AnswerWorkload``.

    Answers to bounded queries become one release, ``answers-*.avro`` and ``card.json``: the first
    run that is complete wins, as in ``WriteRelease``. Answers to a stream become a file for each
    batch, which appears complete and once: of two attempts at the same batch the first stays.
    Files of a stream are numbered within their run, with no gap once it has ended.

    Args:
        directory: a local directory that every worker sees, ``gs://BUCKET/FOLDER``
            or ``s3://BUCKET/FOLDER``. For bounded queries it does not exist yet or is empty; a
            stream may find its own files.
        plan: of the answers.
        ledger_token: that paid for them; the card then names its entry.
        state_number: of the saved state that the run went on from; the card then names it, for
            one entry of a ledger has then several cards.

    Raises:
        InputError: if the directory can't be written, or the token paid for something else; when
            applied, if the pipeline writes there already, or answers are bounded and it holds
            something, or they are windowed.

    Output: the directory, for each thing that was written in it.
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
        """Checks the directory of a release, then writes."""
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


class _WriteRun(beam.DoFn):
    def __init__(self, directory: str, plan: AnswersPlan, state_number: int | None) -> None:
        self.directory = directory
        self.plan = plan
        self.state_number = state_number

    def process(self, run: tuple[str, Iterable[AnswerBatch]]) -> Iterator[str]:
        run_id, batches = run
        by_number = {batch.number: batch for batch in batches}
        first = next(iter(by_number.values()))
        # Anything less is no complete run.
        if len(by_number) == first.num_batches:
            card = self.plan.card(first.num_records)
            if self.state_number is not None:
                card["ledger_state"] = self.state_number
            rows = [row for number in sorted(by_number) for row in by_number[number].answers]
            release = AnswersRelease(
                draw_id=run_id, guarantee=self.plan.guarantee, rows=rows, stated=card
            )
            commit_release(release, self.directory)
            yield self.directory


class _WriteBatch(beam.DoFn):
    def __init__(self, directory: str) -> None:
        self.directory = directory

    def process(self, batch: AnswerBatch) -> Iterator[str]:
        write_batch(batch.answers, batch.run_id, batch.number, self.directory)
        yield self.directory
