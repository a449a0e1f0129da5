"""Windows of a topic: each exact table, from the messages that a real broker kept."""

from __future__ import annotations

import datetime
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from engines import kafka_broker
from patience import HANG_SECONDS

import beam_dp as dp
import beam_dp.yaml
from beam_dp.domain.horizon import Horizon, WindowUnit, counted_windows

pytestmark = [pytest.mark.engines, pytest.mark.part]
NUM_CELLS = 8
DOMAIN = dp.Domain((dp.IntegerAttribute("a", 0, NUM_CELLS - 1),))
PARTITIONS = 2
TOPIC = "visits"
TIMES = {"event_time": "t", "arrival": "arrival"}
SETTLE = "10s"  # on a loaded machine the broker may be polled late
Release = Callable[[beam.Pipeline], Any]


@pytest.fixture(scope="module")
def broker(tmp_path_factory) -> Iterator[str]:
    """The address of a broker with suitable and unsuitable topics."""
    reason = kafka_broker.missing()
    if reason is not None:
        pytest.skip(reason)
    pytest.importorskip("confluent_kafka")
    from confluent_kafka.admin import AdminClient, NewTopic

    topics = {
        TOPIC: {},
        "by-producers": {"message.timestamp.type": "CreateTime"},
        "compacted": {"cleanup.policy": "compact"},
        "short": {"retention.ms": "1000"},
    }
    with kafka_broker.broker(tmp_path_factory.mktemp("kafka")) as address:
        new = [NewTopic(name, PARTITIONS, config=config) for name, config in topics.items()]
        client = AdminClient({"bootstrap.servers": address})
        for future in client.create_topics(new).values():
            future.result()
        yield address


class Producer(threading.Thread):
    """Sends messages until the horizon is over.

    Events may be out of order, too late or in the future; some messages are not records, and two
    windows stay empty.
    """

    def __init__(self, address: str, horizon: Horizon) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.horizon = horizon
        self.rng = np.random.default_rng(4)

    def run(self) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.address})
        while time.time() < self.horizon.closes(self.horizon.num_windows - 1):
            for age in self.rng.exponential(1.2, 100) - 0.2:
                event = int(time.time() - age)
                if (event - self.horizon.start) // self.horizon.window not in (3, 4):
                    row = {"a": int(self.rng.integers(NUM_CELLS)), "t": event}
                    producer.produce(TOPIC, json.dumps(row))
            producer.produce(TOPIC, b"{no record")
            producer.produce(TOPIC, b"7")
            producer.flush()
            time.sleep(0.1)


def kept_by(address: str, horizon: Horizon) -> np.ndarray:
    """The expected counts of the messages that the broker kept."""
    from confluent_kafka import Consumer, TopicPartition

    counts = np.zeros((horizon.num_windows, NUM_CELLS), np.int64)
    consumer = Consumer({"bootstrap.servers": address, "group.id": "truth"})
    for number in range(PARTITIONS):
        place = TopicPartition(TOPIC, number, 0)
        _, left = consumer.get_watermark_offsets(place, timeout=HANG_SECONDS)
        consumer.assign([place])
        messages = consumer.consume(left, timeout=HANG_SECONDS)
        assert [each.error() for each in messages] == [None] * left
        for message in messages:
            if message.value().startswith(b'{"a"'):
                row, arrival = json.loads(message.value()), message.timestamp()[1] // 1000
                (window,) = counted_windows(horizon, np.array([row["t"]]), np.array([arrival]))
                if window >= 0:
                    counts[window, row["a"]] += 1
    consumer.close()
    return counts


def released_in_python(broker: str, horizon: Horizon, plan: Any, out: str) -> Release:
    visits = dp.ReadKafka(broker, TOPIC, horizon, settle=SETTLE)
    assert visits.source == {"topic": TOPIC, "num_partitions": PARTITIONS}
    horizon_id = dp.begin_windows(plan, out, visits.source, **TIMES, replayable=True)
    return lambda pipeline: (
        pipeline | visits | dp.ReleaseWindows(plan, out, horizon_id, *TIMES.values())
    )


def released_in_yaml(broker: str, horizon: Horizon, plan: Any, out: str) -> Release:
    start = datetime.datetime.fromtimestamp(horizon.start, datetime.UTC).isoformat()
    times = {"start": start, "window": "1s", "num_windows": horizon.num_windows, "grace": "2s"}
    visits = beam_dp.yaml.ReadKafka(servers=broker, topic=TOPIC, settle=SETTLE, **times)
    fields = {"domain": {"a": NUM_CELLS}, "workload": "marginals:1", **TIMES, **times}
    promise = {"epsilon": 2000, "delta": 0, "neighboring": "add_or_remove_one"}
    unit = {"privacy_unit": "record", "max_records_per_unit": 1}
    release = beam_dp.yaml.ReleaseWindows(**fields, **promise, **unit, output=out)
    return lambda pipeline: pipeline | visits | release


@pytest.mark.parametrize("released", [released_in_python, released_in_yaml])
def test_windows_from_kafka_topic_are_exact_on_flink(tmp_path, broker, flink, released):
    horizon = Horizon(int(time.time()) + 2, 1, 10, 2)
    plan = dp.plan_window_tables(
        dp.marginals(DOMAIN, ways=1), horizon, WindowUnit("record", 1, 1, 1), 2000.0, 0.0
    )
    release = released(broker, horizon, plan, str(tmp_path / "out"))
    producer = Producer(broker, horizon)
    producer.start()
    flags = [*flink, "--streaming", "--checkpointing_interval=1000"]
    flags += ["--finish_bundle_before_checkpointing", "--shutdown_sources_after_idle_ms=50000"]
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        _ = release(pipeline)
    producer.join()
    windows = dp.read_windows(tmp_path / "out")
    assert windows.released == tuple(range(10))
    found = [windows.answer(plan.workload, slice(n, n + 1))[0].values for n in range(10)]
    expected = kept_by(broker, horizon)
    np.testing.assert_array_equal(np.rint(found), expected)
    # A machine that pauses for seconds may miss a window; two counted ones are enough.
    assert (expected.sum(axis=1) > 0).sum() >= 2


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        (
            "by-producers",
            "topic: 'by-producers' is not valid: must have message.timestamp.type=Log",
        ),
        ("compacted", "topic: 'compacted' is not valid: must have cleanup.policy=delete"),
        ("short", "topic: 'short' is not valid: must have a retention.ms of at least 20000"),
        ("none", "topic: 'none' is not valid: must be an existing topic"),
    ],
)
def test_rejects_topics_that_may_lose_or_repeat_records(broker, topic, message):
    with pytest.raises(dp.InputError, match=message.replace(".", r"\.")):
        dp.ReadKafka(broker, topic, Horizon(int(time.time()), 1, 10, 5), settle=5)


def test_rejects_prism_for_kafka(broker):
    source = dp.ReadKafka(broker, TOPIC, Horizon(int(time.time()), 1, 10, 5), settle=5)
    options = PipelineOptions(["--runner=PrismRunner"])
    with pytest.raises(dp.InputError, match="runner: 'PrismRunner' is not valid"):
        _ = beam.Pipeline(options=options) | source
