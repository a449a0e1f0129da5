"""Every program on a Flink cluster, compared with the same program on FnApiRunner."""

from __future__ import annotations

import json
import os
import pathlib
import re
from typing import Any

import pytest
from engines.cluster import FlinkCluster
from engines.programs import PROGRAMS
from jobs import everything_under

NUM_ENVIRONMENTS = 2
pytestmark = pytest.mark.engines
CHOSEN = {"draw_id", "files"}  # what differs between two draws of one job


def shape(value: Any) -> Any:
    """A JSON value without parts that noise decides: the numbers, and the number of rows."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items() if name not in CHOSEN}
    return [shape(each) for each in value] if isinstance(value, list) else type(value)


def released(folder: pathlib.Path) -> tuple[dict[str, Any], list[str]]:
    """The card, and the names of all files without the draw's id."""
    card = json.loads((folder / "out" / "card.json").read_text(encoding="utf-8"))
    files = [re.sub(card["draw_id"], "DRAW", name) for name in everything_under(folder / "out")]
    return card, files


@pytest.mark.parametrize("name", PROGRAMS)
def test_cluster_release_has_the_same_structure_and_guarantee(tmp_path, cluster, name):
    program = PROGRAMS[name]
    found = {}
    for where, flags in (("local", ["--runner=FnApiRunner"]), ("cluster", cluster.flags())):
        folder = tmp_path / where
        folder.mkdir()
        assert program.main([*program.flags(folder), *flags]) == 0
        found[where] = released(folder)
    (card, files), (expected, expected_files) = found["cluster"], found["local"]
    assert files == expected_files and len(files) == program.num_files
    assert card["draw_id"] != expected["draw_id"]
    for public in ("mechanism", "guarantee", "domain", "workload", "attribute"):
        assert card.get(public) == expected.get(public), public
    assert shape(card) == shape(expected)


def test_work_is_spread_over_both_task_managers(tmp_path, cluster):
    """A cluster that ran everything in one process would prove nothing."""
    cluster.forget_workers()
    program = PROGRAMS["release_intervals"]
    assert program.main([*program.flags(tmp_path), *cluster.flags()]) == 0
    controls = set(cluster.python_workers().values())
    # One port of a task manager per environment: the single worker's asks for memory.
    assert len(controls) == NUM_ENVIRONMENTS * len(cluster.task_managers)


def test_runs_with_the_flags_of_a_user(tmp_path, cluster, job_server_jar):
    """FlinkRunner with its own job server, which sends its jar to the cluster."""
    program = PROGRAMS["release_intervals"]
    flags = ["--runner=FlinkRunner", f"--flink_master={cluster.master}", "--parallelism=2"]
    flags += [f"--flink_job_server_jar={job_server_jar}"]
    flags += [flag for flag in cluster.flags() if flag.startswith("--environment")]
    assert program.main([*program.flags(tmp_path), *flags]) == 0
    assert len(everything_under(tmp_path / "out")) == program.num_files


def test_stopped_cluster_leaves_no_process_or_file(job_server_jar):
    cluster = FlinkCluster(job_server_jar, num_task_managers=1)
    with pytest.raises(ZeroDivisionError), cluster:
        pids = [process.pid for process in cluster.processes]
        _ = 1 // 0
    assert not cluster.folder.exists()
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    assert len(pids) == 4
