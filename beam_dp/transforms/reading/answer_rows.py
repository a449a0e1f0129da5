"""The transform that reads released answers back as rows with a schema."""

from __future__ import annotations

from apache_beam.typehints import Optional  # schemas do not understand ``float | None``

from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.error_bars import FROM_NOISE
from beam_dp.releases.kinds import read_release
from beam_dp.transforms.reading.released_rows import ANSWER, Directory, ReleasedRows, Rows


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
        super().__init__(directory)
        if directory is not None:
            read_release(directory, kind=AnswersRelease)
        self.fields = {"id": Optional[str], "query": str, **ANSWER, "value": Optional[float]}
        self.rows = _answer_values


def _answer_values(directory: str) -> Rows:
    release = read_release(directory, kind=AnswersRelease)
    for row in release.rows:
        value, error, bound = row["value"], row["standard_error"], row["bound"]
        kind = None if error is None else FROM_NOISE
        yield row["id"], row["query"], value, error, bound, kind, row["error"], release.draw_id
