"""What goes from the step that draws noise to the one that writes: public."""

from __future__ import annotations

from typing import Any, NamedTuple

ReleaseShard = tuple[str, tuple[int, int, bytes]]  # draw id, (number, how many, bytes)
Row = dict[str, Any]


class AnswerBatch(NamedTuple):
    """Answers that were committed together; public.

    Args:
        run_id: random, of the run.
        number: of the batch in its run, from 0.
        num_records: N of the run, public or noisy; None where it is private and not needed.
        answers: rows with the fields of ``releases.files.answers.ANSWER_SCHEMA``.
        num_batches: of the run; None for a stream, which is not counted before it ends.
    """

    run_id: str
    number: int
    num_records: int | None
    answers: list[Row]
    num_batches: int | None = None
