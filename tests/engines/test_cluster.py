"""Every program on a Flink cluster, compared with the same program on FnApiRunner."""

import os

import pytest
from engines.cluster import FlinkCluster
from engines.contracts import ON_CLUSTER, check_contract
from program_jobs import texts

NUM_ENVIRONMENTS = 2
pytestmark = [pytest.mark.engines, pytest.mark.part]


@pytest.mark.parametrize("name", ON_CLUSTER)
def test_cluster_release_has_the_same_structure_and_guarantee(tmp_path, cluster, name):
    check_contract(ON_CLUSTER[name], tmp_path, cluster.flags())


def test_work_is_spread_over_both_task_managers(tmp_path, cluster):
    """A cluster that ran everything in one process would prove nothing."""
    cluster.forget_workers()
    job = ON_CLUSTER["intervals"]
    assert job.main([*texts(job.flags(tmp_path)), *cluster.flags()]) == 0
    controls = set(cluster.python_workers().values())
    # One port of a task manager per environment: the single worker's asks for memory.
    assert len(controls) == NUM_ENVIRONMENTS * len(cluster.task_managers)


def test_cluster_job_runs_with_ordinary_flags(tmp_path, cluster, job_server_jar):
    """FlinkRunner with its own job server, which sends its jar to the cluster."""
    flags = ["--runner=FlinkRunner", f"--flink_master={cluster.master}", "--parallelism=2"]
    flags += [f"--flink_job_server_jar={job_server_jar}"]
    flags += [flag for flag in cluster.flags() if flag.startswith("--environment")]
    check_contract(ON_CLUSTER["intervals"], tmp_path, flags)


def test_stopped_cluster_leaves_no_process_or_file(job_server_jar):
    cluster = FlinkCluster(job_server_jar, num_task_managers=1)
    with pytest.raises(ZeroDivisionError), cluster:
        pids = [process.pid for process in cluster.processes]
        _ = 1 // 0
    assert not cluster.folder.exists()
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    assert len(pids) == 4
