"""Transforms for Beam YAML: the programs, with flags as fields and records as input.

Each transform checks its fields as the program checks its flags, with the same messages. The
transform also writes its release, so that all checks come before a budget is spent.
"""

from __future__ import annotations

import abc
import dataclasses
import json
import logging
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import apache_beam as beam

from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.flags.command_line import in_words_of_flags
from beam_dp.flags.flag import Flag, FlagError, check_texts, nearest
from beam_dp.flags.shared import DISCOVER, INPUT, INPUT_FORMAT, MAX_RECORDS_PER_UNIT
from beam_dp.mechanisms.discovery.plan import DomainPlan
from beam_dp.mechanisms.discovery.records_per_unit import RecordsPlan
from beam_dp.mechanisms.marginals.plan import MarginalsPlan
from beam_dp.privacy.ledger.entries import LaterToken
from beam_dp.privacy.ledger.urls import holds_secrets
from beam_dp.releases.kinds import holds_horizon, read_release
from beam_dp.transforms import answers, intervals, windows
from beam_dp.transforms.reading import read, released_rows
from beam_dp.transforms.writing import refuse_taken_output

from . import (
    answer_queries,
    release_intervals,
    release_projection,
    release_synthetic_database,
)
from .beam_flags import refuse_unshared_output
from .program import Job, Program
from .stages import StagedJob

# Flags that only the command line accepts, and the condition in the error message.
_ON_COMMAND_LINE = (
    "must be given on the command line, to the program of this transform, such as"
    " beam-dp release-intervals"
)
_ELSEWHERE = {
    "input": "must be the input of the transform, such as ReadRecords",
    "input_format": "must be given to ReadRecords",
    "validate_only": _ON_COMMAND_LINE,
    "json": _ON_COMMAND_LINE,
    "state": "must be given to beam-dp answer-queries",
    "resume": "must be given to beam-dp answer-queries",
    "poll": "must be given to beam-dp release-windows, which looks for new files",
    "settle": "must be given to ReadKafka",
    "replay": "must not be given: ReadRecords reads the files that exist",
    "checkpointing_interval": "must be given to the runner",
    "savepoint_path": "must be given to the runner",
    # These fields are private, but Beam writes all fields into the graph of the job.
    "expect_records": _ON_COMMAND_LINE,
}
# A field that Beam defines for all transforms.
_ERROR_HANDLING = (
    "must not be given: records that do not fit are left out, because an output of them would"
    " publish them without noise"
)
ATTRIBUTES = Flag("attributes", "attributes to count by", "NAMES")
_LOG = logging.getLogger("beam_dp.yaml")


class ReadRecords(beam.PTransform):
    """Reads files of records like ``beam_dp.ReadRecords``: only the columns that a release needs.

    The fields are ``input``, a glob, and ``input_format`` if the extension does not show the
    format.

    Raises:
        ConfigError: if a field or a file is invalid, or if the transform is applied to an input.

    Output: Arrow batches, for the transforms of this module.
    """

    _flags: ClassVar[Sequence[Flag]] = (INPUT, INPUT_FORMAT)

    def __init__(self, **config: Any) -> None:
        super().__init__()
        with in_words_of(self._flags):
            texts = texts_of(self._flags, config)
            self._read = read.ReadRecords(texts["input"], file_format=texts.get("input_format"))

    def expand(self, pipeline: beam.pvalue.PBegin) -> beam.PCollection[Any]:
        """Returns a placeholder for the records; the release reads the columns that it needs."""
        with in_words_of(self._flags):
            if not isinstance(pipeline, beam.pvalue.PBegin):
                condition = "must not be given: ReadRecords reads files, and must come first"
                raise InputError("records", "the output of another transform", condition)
            return pipeline | self._read


class Release(beam.PTransform):
    """The common steps of all releases: read and check the fields, pay, release and write.

    Input: Arrow batches (from ``ReadRecords``), dicts, or rows with a schema, from any source.
    Output: one row with the ``directory`` of the release, once the release is written.
    """

    _program: ClassVar[Program[Any]]
    _fixed: ClassVar[Mapping[str, str]] = {}  # flags that have no field

    def __init__(self, **config: Any) -> None:
        super().__init__()
        self._flags = self._program.flags
        with in_words_of(self._flags):
            texts = texts_of(self._flags, config, _ELSEWHERE)
            # Beam writes all fields into the graph of the job.
            if "ledger" in texts and holds_secrets(texts["ledger"]):
                condition = "must not contain a password: Beam shows fields to all who see the job"
                raise InputError("ledger", "a URL with a password", condition)
            texts |= {"input": "", **self._fixed}
            self._job = self._of_this_run(self._program.read_job(texts))

    def _of_this_run(self, job: Job) -> Job:
        """Returns the job of this pipeline; a program may run several, one after the other."""
        return job

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[beam.Row]:
        """Checks, builds, then pays. Building it twice pays twice, because both copies may run."""
        with in_words_of(self._flags):
            self._refuse(records)
            token = self._job.token()
            written = self._job.add(records, token)
            if isinstance(token, LaterToken):
                self._job.probe()
                self._job.pay(token)
                assert self._job.ledger is not None
                self._job.ledger.mark_submitted(token)  # nothing says when the pipeline is run
            elif self._job.entry is not None:
                self._job.mark()
            for warning in self._job.warnings():
                _LOG.warning(without_dashes(warning, self._flags))
        rows = written | "Directory" >> beam.Map(lambda path: beam.Row(directory=str(path)))
        rows.made_by = self  # transforms of rows read this attribute
        return rows

    def _refuse(self, records: Any) -> None:
        """Refuses invalid inputs, outputs and runners, which only the pipeline knows."""
        if not isinstance(records, beam.PCollection):
            given = list(records) if isinstance(records, Mapping) else type(records).__name__
            condition = "must be one collection: join several with Flatten"
            raise InputError("records", given, condition)
        refuse_taken_output(records.pipeline, self._job.output)
        refuse_unshared_output(self._job.output, type(records.pipeline.runner).__name__)


class ReleaseSyntheticDatabase(Release):
    """Like ``beam-dp release-synthetic-database``, for records from any source.

    What is to be discovered must have been released before, by ``ReleaseRecordsPerUnit`` and
    ``ReleaseDomain`` with the same fields.
    """

    _program = release_synthetic_database.PROGRAM
    _kind: ClassVar[Any] = MarginalsPlan  # of the plan
    _needed: ClassVar[tuple[str, str]]  # the field that asks for an earlier release, and how

    def _of_this_run(self, job: Job) -> Job:
        job = job.resumed() if isinstance(job, StagedJob) else job
        if isinstance(job.plan, self._kind):
            return job
        if not isinstance(job, StagedJob):
            name, condition = self._needed
            raise InputError(name, job.headline(), condition)
        transforms = ReleaseSyntheticDatabase.__subclasses__()
        first = next(each.__name__ for each in transforms if isinstance(job.plan, each._kind))
        condition = f"must be discovered first: run a file with {first} and these fields"
        name, value = job.plan.asked_by
        raise InputError(name, value, condition)


class ReleaseDomain(ReleaseSyntheticDatabase):
    """The run of a release that finds its domain, with the fields of that release.

    Writes the domain into the folder ``domain`` of ``output``. The first run pays for all.
    """

    _kind = DomainPlan
    _needed = "domain", 'must have attributes with "discover"'


class ReleaseRecordsPerUnit(ReleaseSyntheticDatabase):
    """The first run of a release that chooses its records per unit, with the fields of the release.

    Writes noisy counts into the folder ``records_per_unit`` of the next release, and pays for all.
    """

    _kind = RecordsPlan
    _needed = MAX_RECORDS_PER_UNIT.name, f"must be {DISCOVER}"


class ReleaseProjection(Release):
    """Like ``beam-dp release-projection``, for records from any source."""

    _program = release_projection.PROGRAM


class ReleaseIntervals(Release):
    """Like ``beam-dp release-intervals``, for records from any source."""

    _program = release_intervals.PROGRAM


class AnswerQueries(Release):
    """Like ``beam-dp answer-queries`` with known queries, for records from any source."""

    _program = answer_queries.PROGRAM


class Rows(beam.PTransform, abc.ABC):
    """Emits rows about the committed release of the transform before."""

    _flags: ClassVar[Sequence[Flag]] = ()
    _after: ClassVar[type[Release]]
    _told: ClassVar[Sequence[str]] = ("directory",)  # what is read of a released row

    def __init__(self, **config: Any) -> None:
        super().__init__()
        with in_words_of(self._flags):
            self._texts = texts_of(self._flags, config)

    def expand(self, released: Any) -> beam.PCollection[Any]:
        """Reads the committed release."""
        maker = getattr(released, "made_by", None)
        if type(maker) is not self._after:  # subclasses release something else
            condition = f"the input must be the output of {self._after.__name__}"
            raise ConfigError(f"{condition}; ReadRows reads an existing release")
        with in_words_of(self._flags):
            contents = operator.attrgetter(*self._told)
            return released | "Released" >> beam.Map(contents) | self._rows(maker._job)

    @abc.abstractmethod
    def _rows(self, job: Any) -> beam.PTransform:
        """Returns the transform for the release of a job."""


class SyntheticRows(Rows):
    """Emits the records of a release as rows, like ``beam_dp.SyntheticRows``."""

    _after = ReleaseSyntheticDatabase

    def _rows(self, job: Any) -> beam.PTransform:
        return released_rows.SyntheticRows(domain=job.plan.domain)


class MarginalRows(Rows):
    """Emits the counts of a marginal as rows, like ``beam_dp.MarginalRows``."""

    _flags = (dataclasses.replace(ATTRIBUTES, required=True),)
    _after = ReleaseSyntheticDatabase

    def _rows(self, job: Any) -> beam.PTransform:
        names = names_of(self._texts["attributes"])
        return released_rows.MarginalRows(attributes=names, domain=job.plan.domain)


class IntervalRows(Rows):
    """Emits the count of each integer or bin as a row, like ``beam_dp.IntervalRows``."""

    _after = ReleaseIntervals

    def _rows(self, job: Any) -> beam.PTransform:
        counted = job.plan.attribute
        return intervals.IntervalRows(domain=Domain((counted,)), attribute=counted.name)


class AnswerRows(Rows):
    """Emits answers as rows, like ``beam_dp.AnswerRows``."""

    _after = AnswerQueries

    def _rows(self, _: Any) -> beam.PTransform:
        return answers.AnswerRows()


class ReadRows(beam.PTransform):
    """Emits an existing release as rows: answers, counts, windows, or synthetic records.

    ``attributes`` are the attributes to count by in a synthetic database, or in each window.
    """

    _flags: ClassVar[Sequence[Flag]] = (
        Flag("release", "directory with a release", "DIR", True),
        ATTRIBUTES,
    )

    def __init__(self, **config: Any) -> None:
        super().__init__()
        with in_words_of(self._flags):
            texts = texts_of(self._flags, config)
            text = texts.get("attributes")
            self._rows = _rows_of(texts["release"], None if text is None else names_of(text))

    def expand(self, pipeline: beam.pvalue.PBegin) -> beam.PCollection[Any]:
        """Reads the release."""
        with in_words_of(self._flags):
            return pipeline | self._rows


def _rows_of(directory: str, names: Sequence[str] | None) -> beam.PTransform:
    if holds_horizon(directory):
        if names is None:
            raise FlagError("attributes is required: those to count by in each window")
        return windows.WindowRows(directory, attributes=names)
    if names is not None:
        return released_rows.MarginalRows(directory, attributes=names)
    kinds = {"intervals": intervals.IntervalRows, "answers": answers.AnswerRows}
    rows: Callable[[str], beam.PTransform] = kinds.get(
        read_release(directory).KIND, released_rows.SyntheticRows
    )
    return rows(directory)


def names_of(text: str) -> list[str]:
    """Returns attributes, which YAML gives as one name or as a list."""
    names: list[str] = json.loads(text) if text.startswith("[") else [text]
    return names


@contextmanager
def in_words_of(flags: Sequence[Flag]) -> Iterator[None]:
    """Turns an error about a flag into a one-line error about a field."""
    try:
        yield
    except (FlagError, InputError) as error:
        raise ConfigError(without_dashes(in_words_of_flags(error, flags), flags)) from None


_READ_AS_JSON = ("domain", "workload", "queries")


class ConfigError(ValueError):
    """A one-line message about a field of a configuration; never contains private data."""


def texts_of(
    flags: Sequence[Flag], config: Mapping[str, object], elsewhere: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Returns the flags that a configuration is equivalent to, as typed values by name."""
    elsewhere = elsewhere or {}
    fields = [flag for flag in flags if flag.name not in elsewhere]
    by_name = {flag.name: flag for flag in fields}
    texts: dict[str, str | None] = {flag.name: flag.default for flag in fields}
    for name, value in config.items():
        if name in by_name:
            texts[name] = _text(by_name[name], value)
        elif name == "error_handling":
            raise InputError(name, value, _ERROR_HANDLING)
        elif name in elsewhere and name in {flag.name for flag in flags}:
            raise InputError(name, value, elsewhere[name])
        elif not by_name:
            raise FlagError(f"{name}: unknown field; there are none")
        else:
            raise FlagError(
                f"{name}: unknown field; must be one of {', '.join(by_name)};"
                f" the nearest is {nearest(str(name), list(by_name))!r}"
            )
    check_texts(fields, texts)
    return {name: text for name, text in texts.items() if text is not None}


def without_dashes(text: str, flags: Sequence[Flag]) -> str:
    """Returns a message about flags reworded as a message about fields."""
    names = "|".join(flag.name for flag in flags)
    return re.sub(rf"--({names})\b", r"\1", text)


def _text(flag: Flag, value: object) -> str | None:
    """Returns the text that a field's value has as a flag; None for a switch that is false."""
    if flag.is_switch:
        if not isinstance(value, bool):
            raise InputError(flag.name, value, "must be true or false")
        return "true" if value else None
    if value is None:
        return ""  # the field has no value after the colon
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    if flag.name == ATTRIBUTES.name and isinstance(value, Sequence):
        if value and all(isinstance(item, str) for item in value):
            return json.dumps(value, ensure_ascii=False)
        raise InputError(flag.name, value, "must be a list of names")
    if flag.name == "domain" and isinstance(value, Mapping):
        return _json(flag, value)
    if flag.name in _READ_AS_JSON[1:] and isinstance(value, Sequence):
        if value and all(isinstance(item, Mapping) for item in value):
            return "\n".join(_json(flag, item) for item in value)
        raise InputError(flag.name, value, "must be a list of mappings, or a string")
    kinds = "a string or a mapping" if flag.name == "domain" else "a string or a number"
    raise InputError(flag.name, value, f"must be {kinds}")


def _json(flag: Flag, value: Mapping[str, object]) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except TypeError:
        # YAML reads an unquoted 2024-01-01 as a date.
        condition = "must contain only strings, numbers, true, false and null: quote dates"
        raise InputError(flag.name, value, condition) from None
