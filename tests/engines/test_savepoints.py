"""A job of windows that is stopped with a savepoint of Flink, and goes on from it."""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from engines.cluster import ROOT, FlinkCluster
from engines.test_streams import Trial
from patience import wait_for

pytestmark = [pytest.mark.engines, pytest.mark.part]
CHECKPOINTS = "--checkpointing_interval=2000"
PROGRAM = "import sys; from pipelines import release_windows as p; sys.exit(p.main(sys.argv[1:]))"


def post(cluster: FlinkCluster, path: str, **fields: Any) -> Any:
    """The response to a request of the job manager's REST interface."""
    request = urllib.request.Request(
        f"http://{cluster.master}{path}",
        json.dumps(fields).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def stopped_with_savepoint(cluster: FlinkCluster, folder: Path, trial: Trial, drain: bool) -> str:
    """Runs a job until some windows are released, and stops it; returns where its savepoint is."""
    command = [sys.executable, "-c", PROGRAM, *trial.flags([*cluster.flags(), CHECKPOINTS])]
    with subprocess.Popen(command, cwd=ROOT) as program:
        wait_for("windows", lambda: trial.num_released >= 5)
        (job,) = (each["jid"] for each in jobs(cluster) if each["state"] == "RUNNING")
        asked = post(cluster, f"/jobs/{job}/stop", targetDirectory=folder.as_uri(), drain=drain)
        path = f"/jobs/{job}/savepoints/{asked['request-id']}"
        wait_for("the savepoint", lambda: cluster.rest(path)["status"]["id"] == "COMPLETED")
        program.wait()
    return str(cluster.rest(path)["operation"]["location"])


def jobs(cluster: FlinkCluster) -> list[dict[str, Any]]:
    """The jobs of the cluster, the last first."""
    found = cluster.rest("/jobs/overview")["jobs"]
    return sorted(found, key=lambda each: -each["start-time"])


def test_windows_stay_exact_when_a_job_goes_on_from_a_savepoint(tmp_path, cluster, waiting):
    waiting.disarm()
    trial = Trial(tmp_path, 20, limited=True)
    savepoint = stopped_with_savepoint(cluster, tmp_path / "savepoints", trial, drain=False)
    before = trial.cards()
    assert len(before) < 20
    assert trial.run([*cluster.flags(), CHECKPOINTS, f"--savepoint_path={savepoint}"]) == 0
    checkpoints = cluster.rest(f"/jobs/{jobs(cluster)[0]['jid']}/checkpoints")
    assert checkpoints["latest"]["restored"]["external_path"] == savepoint
    expected = trial.check()
    after = trial.cards()
    assert {number: after[number] for number in before} == before
    for number, counts in waiting.windows():
        assert counts == expected[number].tolist()


def test_drain_waits_for_the_end_of_the_horizon(tmp_path, cluster, waiting):
    """A drain could have released the windows to come without their records."""
    waiting.disarm()
    trial = Trial(tmp_path, 20)
    stopped_with_savepoint(cluster, tmp_path / "savepoints", trial, drain=True)
    trial.check()


def test_flink_refuses_a_savepoint_of_another_horizon(tmp_path, cluster, waiting):
    """Otherwise a horizon of the same times would release counts of the other's records."""
    waiting.disarm()
    (tmp_path / "other").mkdir()
    stopped = Trial(tmp_path, 10, limited=True)
    savepoint = stopped_with_savepoint(cluster, tmp_path / "savepoints", stopped, drain=False)
    other = Trial(tmp_path / "other", 10, limited=True)
    assert other.run([*cluster.flags(), CHECKPOINTS, f"--savepoint_path={savepoint}"]) == 1
    exceptions = cluster.rest(f"/jobs/{jobs(cluster)[0]['jid']}/exceptions")
    assert "Failed to rollback to checkpoint/savepoint" in exceptions["root-exception"]
    assert other.num_released == 0
