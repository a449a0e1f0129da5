"""Transforms for Beam YAML that read, release and show the windows of a stream."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import apache_beam as beam

from beam_dp.errors import InputError
from beam_dp.flags import windows as window_flags
from beam_dp.flags.flag import Flag
from beam_dp.mechanisms.windows.plan import horizon_card
from beam_dp.releases.kinds import holds_horizon
from beam_dp.releases.windows.horizon_files import begin_horizon
from beam_dp.transforms import windows
from beam_dp.transforms.reading import read_kafka
from beam_dp.transforms.writing import take_output

from . import release_windows
from .yaml_transforms import ATTRIBUTES, Release, Rows, in_words_of, names_of, texts_of


class ReadKafka(beam.PTransform):
    """Reads the JSON objects that arrive in a topic during a horizon, like ``beam_dp.ReadKafka``.

    Output: mappings with the column ``arrival``, for ``ReleaseWindows``.
    """

    _flags: ClassVar[Sequence[Flag]] = (
        Flag("servers", "hosts and ports of brokers, separated by commas", "HOST:PORT", True),
        Flag("topic", "the topic, whose broker stamps arrivals", "NAME", True),
        Flag("settle", "how far clocks may differ, such as 10s", "LENGTH", True),
        *window_flags.HORIZON,
    )

    def __init__(self, **config: Any) -> None:
        super().__init__()
        with in_words_of(self._flags):
            texts = texts_of(self._flags, config)
            horizon = window_flags.read_horizon(texts)
            self._read = read_kafka.ReadKafka(
                texts["servers"], texts["topic"], horizon, settle=texts["settle"]
            )

    def expand(self, pipeline: beam.pvalue.PBegin) -> beam.PCollection[Any]:
        """Reads each partition."""
        with in_words_of(self._flags):
            return pipeline | self._read


class ReleaseWindows(Release):
    """Like ``beam-dp release-windows``, for the records of ``ReadKafka`` or ``ReadRecords``.

    Other sources are refused: if a job continues, it must get the same records and arrivals again.

    Output: a row for each window and block, once it is released: ``level`` and ``number``.
    """

    _program = release_windows.PROGRAM
    # The source ends by itself, and its own fields say how it is read.
    _fixed: ClassVar[Mapping[str, str]] = {"replay": "true", "poll": "30s", "settle": "2m"}

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[beam.Row]:
        """Builds, begins or continues the horizon, then pays once for the horizon."""
        with in_words_of(self._flags):
            self._refuse(records)
            job = self._job
            assert isinstance(job, release_windows.WindowsJob)
            source = windows.repeatable_source(records)
            if source is None:
                condition = "must all come from ReadKafka or ReadRecords, which can read them again"
                raise InputError("records", "another source", condition)
            times = dict(zip(("event_time", "arrival"), job.times, strict=True))
            horizon = horizon_card(job.plan, {**source, **times}, replayable=True)
            is_begun = holds_horizon(job.output)
            if is_begun:
                horizon_id = begin_horizon(job.output, horizon, job.horizon_id)
                job = dataclasses.replace(job, horizon_id=horizon_id)
            job = dataclasses.replace(job, horizon=horizon)
            released = job.add(records)
            if not is_begun:  # only now, because a horizon that has begun keeps its fields
                if job.ledger is not None:
                    job.ledger.check(job.dataset_id, job.plan.guarantee, job.plan.loss)
                if begin_horizon(job.output, horizon, job.horizon_id) != job.horizon_id:
                    condition = "must not be begun by two pipelines at a time: start again"
                    raise InputError("output", job.output, condition)
                job.release().check_begun(records)
            job.pay_once(job.horizon_id)
            take_output(records.pipeline, job.output)
        rows = released | "Row" >> beam.Map(lambda place: beam.Row(level=place[0], number=place[1]))
        rows.made_by = self
        return rows


class WindowRows(Rows):
    """Emits the counts of a marginal in each window as rows, like ``beam_dp.WindowRows``."""

    _flags = (dataclasses.replace(ATTRIBUTES, required=True),)
    _after = ReleaseWindows
    _told = ("level", "number")

    def _rows(self, job: Any) -> beam.PTransform:
        names = names_of(self._texts["attributes"])
        return windows.WindowRows(job.output, attributes=names)
