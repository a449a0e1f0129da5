"""A job that is cancelled stops on its cluster, too, where Beam's job server leaves it running."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from patience import HANG_SECONDS
from pytest import MonkeyPatch

from pipelines.flink import cancel_job

ENDED = {"jid": "a0", "name": "week-root-1123-f00d", "end-time": 17}
OURS = {"jid": "a1", "name": "week-root-1123-f00d", "end-time": -1}
OTHER = {"jid": "a2", "name": "week-root-1123-beef", "end-time": -1}
JOB_ID = "week-root-1123-f00d_0bb55546-0e3f-4a0b-9fdc-4e0359649fd2"


class Cluster:
    """Answers as a job manager does, and keeps what it is asked to change."""

    def __init__(self, jobs: list[dict[str, Any]]) -> None:
        changes: list[str] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer({"jobs": jobs} if self.path == "/jobs/overview" else {})

            def do_PATCH(self) -> None:
                changes.append(self.path)
                self.answer({})

            def answer(self, value: Any) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(value).encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.changes = changes
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.master = f"127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def jobs() -> list[dict[str, Any]]:
    return [ENDED, OURS, OTHER]


@pytest.fixture
def cluster(jobs: list[dict[str, Any]], monkeypatch: MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr("pipelines.flink.SECONDS_TO_ANSWER", HANG_SECONDS)
    found = Cluster(jobs)
    with found.server as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield found
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("address", ["{}", " {} ", "http://{}"])
def test_the_job_that_runs_is_cancelled_and_no_other(cluster: Cluster, address: str) -> None:
    cancel_job(address.format(cluster.master), JOB_ID)
    assert cluster.changes == ["/jobs/a1?mode=cancel"]


def test_of_several_jobs_of_a_name_none_is_cancelled(
    cluster: Cluster, jobs: list[dict[str, Any]]
) -> None:
    jobs.append({**OURS, "jid": "a3"})
    cancel_job(cluster.master, JOB_ID)
    assert cluster.changes == []


def test_what_runs_in_the_job_server_needs_nothing() -> None:
    cancel_job("[auto]", JOB_ID)
    cancel_job(" [local]", JOB_ID)
