"""A single-process Kafka broker whose topics use append time."""

import contextlib
import pathlib
import shutil
import subprocess
from collections.abc import Iterator

from engines.cluster import ROOT, free_ports
from patience import HANG_SECONDS, wait_for

JARS = ROOT / "kafka-jars"
_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"


def missing() -> str | None:
    """What a broker lacks on this machine, in one line; None if it can start."""
    if shutil.which("java") is None:
        return "Java is not installed"
    if not list(JARS.glob("kafka_*.jar")):
        return "no broker of Kafka: `make kafka` fetches one, where Maven is installed"
    return None


@contextlib.contextmanager
def broker(folder: pathlib.Path) -> Iterator[str]:
    """Runs a broker in an empty folder; yields its host and port."""
    from confluent_kafka.admin import AdminClient

    port, control = free_ports(2)
    settings = folder / "server.properties"
    lines = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@localhost:{control}",
        "listeners": f"PLAINTEXT://localhost:{port},CONTROLLER://localhost:{control}",
        "advertised.listeners": f"PLAINTEXT://localhost:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(folder / "logs"),
        "offsets.topic.replication.factor": "1",
        "log.message.timestamp.type": "LogAppendTime",
    }
    settings.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    java = ["java", "-Xmx350m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    java += [f"-Djava.io.tmpdir={folder}", "-cp", f"{JARS}/*"]
    log = folder / "broker.log"
    with log.open("wb") as said:
        form = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(settings)]
        subprocess.run([*java, *form], stdout=said, stderr=said, check=True)
        server = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=said, stderr=said)
    address = f"localhost:{port}"
    client = AdminClient({"bootstrap.servers": address, "log_level": 0})

    def answers() -> bool:
        assert server.poll() is None, log.read_text(errors="replace")[-2000:]
        with contextlib.suppress(Exception):
            return bool(client.list_topics(timeout=HANG_SECONDS).brokers)
        return False

    try:
        wait_for("the broker", answers)
        yield address
    finally:
        server.kill()
        server.wait()
