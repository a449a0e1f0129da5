"""Packages shipped by `--setup_file`, installed elsewhere and run by workers there.

Beam's own stager makes the source distribution, and pip installs it into an empty environment,
where the kernel is compiled. Its version differs from that of any checkout, so the card shows which
package made the release. Dependencies are not downloaded again: a path file adds them from the
environment of the tests, which does not make `beam_dp` of the checkout importable.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator

import pytest
from apache_beam.runners.portability.stager import Stager
from engines.cluster import free_ports, wait_for_server
from jobs import interval_flags, job_flags
from package_sources import ROOT, copy_sources
from patience import HANG_SECONDS

from beam_dp.hashing.evaluation import available_backends

pytestmark = [pytest.mark.engines, pytest.mark.part]
VERSION = "0.0.1+shipped"

PROBE = """
import json
import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

def look(_):
    import beam_dp, beam_dp.pipelines.release_synthetic_database as program
    from beam_dp.hashing.evaluation import active_backend
    try:
        import pipelines
        checkout = pipelines.__file__
    except ImportError:
        checkout = None
    return json.dumps([beam_dp.__file__, program.__file__, active_backend(), checkout])

def keep(line):
    with open({path!r}, "w") as file:
        file.write(line)

with beam.Pipeline(options=PipelineOptions({flags!r})) as pipeline:
    _ = pipeline | beam.Create([None]) | beam.Map(look) | beam.Map(keep)
"""


@pytest.fixture(scope="module")
def shipped(tmp_path_factory) -> pathlib.Path:
    """An environment that holds the package, installed from the source distribution."""
    folder = tmp_path_factory.mktemp("shipped")
    checkout, staged = folder / "checkout", folder / "staged"
    staged.mkdir()
    setup = copy_sources(checkout)
    project = setup.with_name("pyproject.toml")
    text, old = project.read_text(encoding="utf-8"), 'version = "0.1.0"'
    assert text.count(f"\n{old}\n") == 1
    project.write_text(text.replace(old, f'version = "{VERSION}"', 1), encoding="utf-8")
    archive = Stager._build_setup_package(str(setup), str(staged))
    shutil.rmtree(checkout)

    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    # As the worker's boot program does; a build that is not isolated would need our setuptools.
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", archive]
    subprocess.run(install, check=True, cwd=folder)
    (packages,) = environment.glob("lib/python*/site-packages")
    shared = sysconfig.get_paths()["purelib"]
    (packages / "dependencies_of_the_tests.pth").write_text(f"{shared}\n", encoding="utf-8")
    return environment


@pytest.fixture(scope="module")
def workers(shipped, tmp_path_factory) -> Iterator[list[str]]:
    """Beam's flags that send the work to a pool of workers in that environment."""
    folder = tmp_path_factory.mktemp("workers")
    (port,) = free_ports(1)
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV", "BEAM_DP_HASHING_BACKEND")
    }
    environment["PATH"] = f"{shipped / 'bin'}{os.pathsep}{environment['PATH']}"
    command = ["-m", "apache_beam.runners.worker.worker_pool_main", f"--service_port={port}"]
    with (folder / "log").open("wb") as log:
        pool = subprocess.Popen(
            [shipped / "bin" / "python", *command],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_for_server(pool, port, folder / "log")
        yield [
            "--runner=PortableRunner",
            "--job_endpoint=embed",
            "--environment_type=EXTERNAL",
            f"--environment_config=127.0.0.1:{port}",
        ]
    finally:
        os.killpg(pool.pid, signal.SIGKILL)
        pool.wait()


def submit(folder: pathlib.Path, command: list[str], *, python_path: str | None) -> None:
    """Runs a command as a user who submits a job, in a folder outside the checkout."""
    environment = {**os.environ, "PYTHONPATH": python_path or ""}
    result = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]


def test_workers_run_the_shipped_code(tmp_path, shipped, workers):
    found = tmp_path / "found"
    script = tmp_path / "probe.py"
    script.write_text(PROBE.format(path=str(found), flags=workers), encoding="utf-8")
    submit(tmp_path, [sys.executable, str(script)], python_path=str(ROOT))
    package, program, backend, checkout = json.loads(found.read_text(encoding="utf-8"))
    assert pathlib.Path(package).is_relative_to(shipped)
    assert pathlib.Path(program).is_relative_to(shipped)
    # Compiled there: the fastest that this machine runs, unless the checkout has no kernel either.
    assert backend != "numpy"
    assert backend == next(name for name in available_backends() if name != "numpy")
    assert checkout is None, "the workers see the checkout"


def released_by(folder: pathlib.Path) -> str:
    """The version of the package that made a release."""
    card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
    version: str = card["versions"]["beam_dp"]
    return version


def test_program_from_checkout_runs_on_installed_workers(tmp_path, workers):
    argv = ["-m", "pipelines.release_synthetic_database", *job_flags(tmp_path), *workers]
    submit(tmp_path, [sys.executable, *argv], python_path=str(ROOT))
    assert released_by(tmp_path / "out") == VERSION, "another package made the release"


def test_installed_program_runs_on_installed_workers(tmp_path, shipped, workers):
    command = [str(shipped / "bin" / "beam-dp"), "release-intervals"]
    submit(tmp_path, [*command, *interval_flags(tmp_path), *workers], python_path=None)
    assert released_by(tmp_path / "out") == VERSION
