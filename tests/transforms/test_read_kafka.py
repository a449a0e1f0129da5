"""A partition of a topic, read in bundles from a log that grows meanwhile."""

import dataclasses
import itertools
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.runners.sdf_utils import RestrictionTrackerView, ThreadsafeRestrictionTracker
from hypothesis import given, settings, strategies as st

from beam_dp.domain.horizon import Horizon
from beam_dp.transforms.job_page import ReadError
from beam_dp.transforms.reading import read_kafka
from beam_dp.transforms.reading.read_kafka import decode_json

kafka = pytest.importorskip("confluent_kafka", reason="comes with the extra named kafka")

HORIZON = Horizon(1000, 5, 3, 2)  # over at 1017
SETTLE = 1
TOPIC = read_kafka._Topic({"bootstrap.servers": "nowhere"}, "visits", HORIZON, SETTLE)


@dataclasses.dataclass(frozen=True)
class Message:
    """An entry of a log; a transaction marker has an offset, but no consumer gets it."""

    place: int
    milliseconds: int
    text: bytes = b"{}"
    kind: int = kafka.TIMESTAMP_LOG_APPEND_TIME
    is_marker: bool = False

    def offset(self) -> int:
        return self.place

    def timestamp(self) -> tuple[int, int]:
        return self.kind, self.milliseconds

    def value(self) -> bytes:
        return self.text

    def error(self) -> None:
        return None


class Fault:
    """What a consumer returns in addition to messages."""

    def __init__(self, code: int) -> None:
        self.code = code

    def error(self) -> Any:
        return kafka.KafkaError(self.code)


END = Fault(kafka.KafkaError._PARTITION_EOF)


class Broker:
    """A log of one partition, and a clock that advances at each request.

    Args:
        log: all messages, those of the future too.
        steps: seconds that each question takes, again and again.
        most: messages of an answer.
    """

    def __init__(self, log: list[Message], steps: list[float], most: int) -> None:
        self.log = log
        self.now = 1000.0 * min([HORIZON.start, *(each.milliseconds / 1000 for each in log)])
        self.steps = itertools.cycle(steps)
        self.most = most
        self.num_open = 0

    def time(self) -> float:
        return self.now / 1000

    def passes(self) -> None:
        self.now += 1000 * next(self.steps)

    def size(self) -> int:
        """How many messages there are at this moment."""
        return sum(each.milliseconds <= self.now for each in self.log)


class Consumer:
    """One that fetches ahead: the end that it tells of was seen when it last fetched."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        broker.num_open += 1

    def close(self) -> None:
        self.broker.num_open -= 1

    def offsets_for_times(self, asked: list[Any], timeout: float) -> list[Any]:
        later = [
            each.place
            for each in self.broker.log[: self.broker.size()]
            if each.milliseconds >= asked[0].offset
        ]
        return [SimpleNamespace(offset=min(later, default=-1))]

    def list_topics(self, name: str) -> Any:
        return SimpleNamespace(topics={name: SimpleNamespace(partitions=[0])})

    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int]:
        there = self.broker.log[: self.broker.size()]
        return 0, there[-1].place + 1 if there else 0

    def assign(self, places: list[Any]) -> None:
        self.broker.passes()
        self.position = places[0].offset
        self.fetched = self.broker.size()
        self.broker.passes()

    def consume(self, most: int, timeout: float) -> list[Any]:
        self.broker.passes()
        left = [each for each in self.broker.log[: self.fetched] if each.place >= self.position]
        given_out = left[: self.broker.most]
        if given_out:
            self.position = given_out[-1].place + 1
        is_end = len(given_out) == len(left)
        if is_end:
            self.fetched = self.broker.size()
        return [each for each in given_out if not each.is_marker] + [END] * is_end


def bundles(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Returns what each bundle yields, until all is read; no record may be late or left unread."""
    monkeypatch.setattr(
        read_kafka, "time", SimpleNamespace(time=broker.time, monotonic=broker.time)
    )
    monkeypatch.setattr(kafka, "Consumer", lambda settings: Consumer(broker))
    step = read_kafka._ReadPartition(TOPIC, 1, decode_json)
    step.setup()
    restriction = read_kafka._Partitions().initial_restriction(0)
    watermark = ManualWatermarkEstimator(None)
    while restriction is not None:
        tracker = ThreadsafeRestrictionTracker(read_kafka._WholeTracker(restriction))
        before = watermark.current_watermark()
        found = list(step.process(0, RestrictionTrackerView(tracker), watermark))
        assert before is None or all(each.timestamp >= before for each in found)
        assert broker.num_open == 0
        yield found
        left = tracker.deferred_status()
        restriction = None if left is None else left[0]
        broker.passes()


@st.composite
def logs(draw: st.DrawFn) -> list[Message]:
    now, log = 1000 * draw(st.integers(995, 1005)), []
    for place in range(draw(st.integers(0, 60))):
        now += draw(st.integers(0, 900))
        text = draw(st.sampled_from([b"{no record", b"7", b"[]", b""]) | st.just(None))
        text = json.dumps({"place": place}).encode() if text is None else text
        log.append(Message(place, now, text, is_marker=draw(st.integers(0, 5)) == 0))
    return log


@settings(max_examples=40)
@given(logs(), st.lists(st.floats(0.01, 0.6), min_size=1, max_size=5), st.integers(1, 30))
def test_reads_each_message_of_the_horizon_once_and_on_time(log, steps, most):
    with pytest.MonkeyPatch.context() as monkeypatch:
        broker = Broker(log, steps, most)
        found = [each for bundle in bundles(broker, monkeypatch) for each in bundle]
    rows = [each.value for each in found]
    assert len({row["place"] for row in rows}) == len(rows)
    expected = {
        each.place: each.milliseconds // 1000
        for each in log
        if 1000 * TOPIC.begins <= each.milliseconds < 1000 * TOPIC.ends
        and each.text.startswith(b'{"')
        and not each.is_marker
    }
    assert expected.items() <= {row["place"]: row["arrival"] for row in rows}.items()


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (Message(0, 1_001_000, kind=kafka.TIMESTAMP_CREATE_TIME), "the time of its producer"),
        (Fault(kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED), "TOPIC_AUTHORIZATION_FAILED"),
    ],
)
def test_producer_timestamp_or_broker_error_stops_the_job(monkeypatch, extra, message):
    broker = Broker([], [0.1], 1)
    monkeypatch.setattr(Consumer, "consume", lambda *_, **__: [extra])
    with pytest.raises(ReadError, match=message):
        list(bundles(broker, monkeypatch))
    assert broker.num_open == 0


def test_source_names_the_topic_and_its_number_of_partitions(monkeypatch):
    monkeypatch.setattr(read_kafka, "_checked_partitions", lambda source: 3)
    read = read_kafka.ReadKafka("nowhere", "visits", HORIZON, settle=SETTLE)
    source = {"topic": "visits", "num_partitions": 3}
    assert read.source == source
    assert (beam.Pipeline() | read).source == source
