"""The transform that reads records from a Kafka topic, with arrivals stamped by the broker."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import apache_beam as beam
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.utils.timestamp import Duration, Timestamp

from beam_dp.domain.horizon import Horizon, seconds_of_duration
from beam_dp.errors import InputError
from beam_dp.installed import check_installed
from beam_dp.transforms.job_page import ReadError, show_setup, withhold_messages

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

ARRIVAL = "arrival"
# An offset beyond every partition; a step that claims the offset has read the whole horizon.
_END = 2**62
_MESSAGES = 10_000  # per poll
_SECONDS_OF_A_BUNDLE = 1.0
_SECONDS_BETWEEN_BUNDLES = 0.5
_PATIENCE = 30.0  # seconds to wait for a broker's response
_MICROSECONDS = 1000  # microseconds per millisecond, Kafka's unit of time
Decode = Callable[[bytes], Any]


def decode_json(value: bytes) -> Any:
    """Returns a message's JSON value, or None for invalid JSON, so that the message is left out."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


class ReadKafka(beam.PTransform):
    """Reads the messages that arrive in a topic during a horizon.

    A record arrives at the time when the broker appends it to the topic (``LogAppendTime``), which
    producers and records can't change. The additional column ``arrival`` contains that time in
    seconds. The watermark of a partition is the arrival of the last message read, minus ``settle``;
    at the partition's end, the watermark is the clock minus ``settle``. The watermark never depends
    on times of events. If the topic is read again from the start, the messages that it still keeps
    have the same arrival times.

    Messages of aborted transactions count, too, because the log contains these messages.

    Args:
        servers: hosts and ports of brokers, separated by commas.
        topic: the name of the topic. Its broker must stamp messages
            (``message.timestamp.type=LogAppendTime``) and keep them for the whole horizon:
            ``cleanup.policy=delete``, no ``retention.bytes``, and a sufficient ``retention.ms``.
        horizon: the horizon; reading ends when its last window has closed.
        settle: the largest difference between the clocks of brokers and workers, as seconds or a
            string such as ``10s``; >= 1.
        decode: a function from a message's bytes to a mapping; the default reads JSON objects. A
            message is left out if the function raises or returns another type.
        settings: more settings of the consumer, such as ``security.protocol``, stored in the job.

    Raises:
        InputError: if ``settle`` is out of range, or the topic is missing or has other settings;
            when applied, if the runner is Prism, which lost messages of some windows.
        ModuleNotFoundError: without confluent-kafka (``pip install beam_dp[kafka]``).

    Output: mappings, with the arrival as the timestamp.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        horizon: Horizon,
        *,
        settle: int | str,
        decode: Decode = decode_json,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.topic = _Topic(
            {**(settings or {}), "bootstrap.servers": servers},
            topic,
            horizon,
            seconds_of_duration("settle", settle, least=1),
        )
        self.decode = decode
        self.num_partitions = _checked_partitions(self.topic)

    @property
    def source(self) -> dict[str, Any]:
        """The argument ``source`` of ``begin_windows``, which must not change after a restart."""
        return {"topic": self.topic.name, "num_partitions": self.num_partitions}

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[Any]:
        """Reads each partition in bundles of about one second; raises InputError on Prism."""
        runner = begin.pipeline.options.view_as(StandardOptions).runner or ""
        if "Prism" in runner:
            condition = "must be FlinkRunner, for example: Prism lost messages in some windows"
            raise InputError("runner", runner, condition)
        records = (
            begin
            | "Partitions" >> beam.Create(range(self.num_partitions))
            | "Spread partitions" >> beam.Reshuffle()
            | "Read" >> beam.ParDo(_ReadPartition(self.topic, self.num_partitions, self.decode))
        )
        records.source = self.source
        return records


@dataclasses.dataclass(frozen=True)
class _Topic:
    """A topic, and the period in which it is read."""

    settings: Mapping[str, str]
    name: str
    horizon: Horizon
    settle: int

    @property
    def begins(self) -> int:
        """The earliest arrival of a message that may count, in seconds."""
        return self.horizon.start - self.settle

    @property
    def ends(self) -> int:
        """The earliest arrival of a message that comes too late, in seconds."""
        return self.horizon.closes(self.horizon.num_windows - 1)


def _checked_partitions(source: _Topic) -> int:
    """Checks the settings of a topic; returns its number of partitions."""
    check_installed("confluent_kafka", "'beam_dp[kafka]'")
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

    client = AdminClient(dict(source.settings))
    try:
        # Lists all topics, because a broker may create a topic that is requested by name.
        topic = client.list_topics(timeout=_PATIENCE).topics.get(source.name)
        if topic is None or topic.error is not None or not topic.partitions:
            raise InputError("topic", source.name, "must be an existing topic")
        resource = ConfigResource(ResourceType.TOPIC, source.name)
        (future,) = client.describe_configs([resource], request_timeout=_PATIENCE).values()
        settings = {name: entry.value for name, entry in future.result().items()}
    except KafkaException as error:
        brokers = source.settings["bootstrap.servers"]
        condition = f"must be reachable brokers: {error.args[0].name()}"
        raise InputError("servers", brokers, condition) from None
    horizon = source.ends - source.begins
    kept = int(settings["retention.ms"])
    age = 1000 * (time.time() - source.begins)
    if settings["message.timestamp.type"] != "LogAppendTime":
        # A producer chooses its own timestamps, so one record could close all windows.
        condition = "must have message.timestamp.type=LogAppendTime, not CreateTime"
    elif "compact" in settings["cleanup.policy"]:
        condition = "must have cleanup.policy=delete: a compacted topic loses messages"
    elif 0 <= kept < 1000 * horizon:
        condition = f"must have a retention.ms of at least {1000 * horizon}, the horizon's, or -1"
    elif int(settings["retention.bytes"]) >= 0:
        condition = "must not set retention.bytes, which drops messages of the horizon"
    elif 0 <= kept < age:
        condition = (
            f"must still have its messages since the horizon began, but its retention.ms of {kept}"
        )
        condition += " has passed"
    else:
        return len(topic.partitions)
    raise InputError("topic", source.name, condition)


class _WholeTracker(OffsetRestrictionTracker):
    """Returns the whole remainder to the runner, unsplit, because a partition has no end."""

    def try_split(self, fraction_of_remainder: float) -> Any:
        return super().try_split(0) if fraction_of_remainder == 0 else None


class _Partitions(RestrictionProvider):
    """Provides the offsets of a partition, which has no end."""

    def initial_restriction(self, partition: int) -> OffsetRange:
        return OffsetRange(0, _END)

    def create_tracker(self, restriction: OffsetRange) -> _WholeTracker:
        return _WholeTracker(restriction)

    def restriction_size(self, partition: int, restriction: OffsetRange) -> int:
        return 1

    def truncate(self, partition: int, restriction: OffsetRange) -> None:
        return None


_TRACKER = beam.DoFn.RestrictionParam(_Partitions())
_WATERMARK = beam.DoFn.WatermarkEstimatorParam(ManualWatermarkEstimator.default_provider())


@dataclasses.dataclass(eq=False, repr=False)
class _ReadPartition(beam.DoFn):
    """Reads a partition for about one second, then returns the remainder to the runner."""

    source: _Topic
    num_partitions: int
    decode: Decode

    @show_setup
    def setup(self) -> None:
        """Fails early if the worker lacks the Kafka client."""
        import confluent_kafka  # noqa: F401

    @beam.DoFn.unbounded_per_element()
    def process(
        self,
        partition: int,
        tracker: Any = _TRACKER,
        watermark: Any = _WATERMARK,
    ) -> Iterator[beam.window.TimestampedValue]:
        """Yields messages and advances the watermark."""
        start = tracker.current_restriction().start
        # Read the clock before the log: at the log's end, all messages up to this time were read.
        asked = time.time()
        # Each bundle has its own consumer: prefetched offsets of an older consumer may be stale,
        # and an older consumer would reconnect forever after a cancel.
        with contextlib.closing(self._connected()) as consumer:
            self._assign(consumer, partition, start or self._first_offset(consumer, partition))
            until = time.monotonic() + _SECONDS_OF_A_BUNDLE
            has_answered = False  # wait longer for the first response of a slow broker
            while time.monotonic() < until + (0 if has_answered else _PATIENCE):
                messages, is_at_end = self._polled(consumer)
                has_answered = has_answered or bool(messages) or is_at_end
                if messages:
                    if not tracker.try_claim(messages[-1].offset()):
                        return
                    arrivals = [_arrival(self.source.name, message) for message in messages]
                    yield from self._records(messages, arrivals)
                    last = arrivals[-1] / 1000
                    self._move(watermark, min(last, asked))
                    if self._is_over(last):
                        tracker.try_claim(_END - 1)
                        return
                if is_at_end:
                    self._move(watermark, asked)
                    if self._is_over(asked):
                        tracker.try_claim(_END - 1)
                        return
                    break
        tracker.defer_remainder(Duration(_SECONDS_BETWEEN_BUNDLES))

    def _connected(self) -> Consumer:
        from confluent_kafka import Consumer

        # The consumer joins no group: the runner keeps the position in each partition.
        return Consumer(
            {
                **self.source.settings,
                "group.id": "beam_dp",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_uncommitted",
                "enable.partition.eof": True,
            }
        )

    def _is_over(self, seconds: float) -> bool:
        """Returns whether messages that arrive after this time come too late to count."""
        return seconds - self.source.settle >= self.source.ends

    def _first_offset(self, consumer: Consumer, partition: int) -> int:
        """Returns the offset of the first message that may count."""
        from confluent_kafka import TopicPartition

        name = self.source.name
        asked = TopicPartition(name, partition, 1000 * self.source.begins)
        (first,) = consumer.offsets_for_times([asked], timeout=_PATIENCE)
        if len(consumer.list_topics(name).topics[name].partitions) != self.num_partitions:
            raise ReadError(f"topic {name}: its number of partitions has changed")
        if first.offset >= 0:
            return int(first.offset)
        place = TopicPartition(name, partition)
        return int(consumer.get_watermark_offsets(place, timeout=_PATIENCE)[1])

    def _assign(self, consumer: Consumer, partition: int, offset: int) -> None:
        from confluent_kafka import TopicPartition

        consumer.assign([TopicPartition(self.source.name, partition, offset)])

    def _polled(self, consumer: Consumer) -> tuple[list[Message], bool]:
        """Returns the next messages, and whether the end of the partition was reached."""
        from confluent_kafka import KafkaError

        messages = consumer.consume(_MESSAGES, timeout=0.1)
        errors = [message.error() for message in messages if message.error() is not None]
        ends = [error for error in errors if error.code() == KafkaError._PARTITION_EOF]
        for error in errors:
            if error not in ends and not error.retriable():
                raise ReadError(f"topic {self.source.name}: {error.name()}")
        return [one for one in messages if one.error() is None], bool(ends)

    def _move(self, watermark: Any, to: float) -> None:
        moved = Timestamp(micros=int((to - self.source.settle) * 1e6))
        before = watermark.current_watermark()
        if before is None or moved > before:
            watermark.set_watermark(moved)

    @withhold_messages
    def _records(
        self, messages: Iterable[Message], arrivals: Iterable[int]
    ) -> Iterator[beam.window.TimestampedValue]:
        for message, arrival in zip(messages, arrivals, strict=True):
            try:
                record = self.decode(message.value() or b"")
            except Exception:  # stopping the job would reveal the message
                continue
            if isinstance(record, Mapping):
                stamped = {**record, ARRIVAL: arrival // 1000}
                yield beam.window.TimestampedValue(
                    stamped, Timestamp(micros=arrival * _MICROSECONDS)
                )


def _arrival(topic: str, message: Message) -> int:
    """Returns the time at which a broker appended a message, in milliseconds."""
    from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME

    kind, arrival = message.timestamp()
    if kind != TIMESTAMP_LOG_APPEND_TIME:
        raise ReadError(f"topic {topic}: a message has the time of its producer, not its broker's")
    return int(arrival)
