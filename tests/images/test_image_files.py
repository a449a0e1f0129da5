"""The Dockerfile and compose.yaml agree with the programs, with each other and with the manual."""

import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from typing import Any

import pytest
import yaml
from apache_beam.options.pipeline_options import FlinkRunnerOptions
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from images.building import ROOT, arguments, pinned, stand_ins
from package_sources import copy_sources
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from beam_dp.cli.main import main as cli
from beam_dp.flags.command_line import PROGRAMS
from beam_dp.mechanisms.resources import worker_bytes
from beam_dp.privacy.ledger.ledger import Ledger
from pipelines import release_windows

COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
MANUAL = (ROOT / "docs" / "images.md").read_text(encoding="utf-8")
START = "2026-11-23T00:00:00Z"


def flags(service: str) -> dict[str, str]:
    """The flags of a service's command, with their values."""
    given = [word for word in SERVICES[service]["command"] if word.startswith("--")]
    return dict(word[2:].split("=", 1) for word in given)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> pathlib.Path:
    """What a container finds in its folder /data, with one file that has arrived."""
    (tmp_path / "landing").mkdir()
    stream = ROOT / "examples" / "stream"
    subprocess.run([stream / "arrive.sh", tmp_path / "landing", "1"], check=True)
    (tmp_path / "visits.json").symlink_to(stream / "visits.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def release_job(folder: pathlib.Path) -> release_windows.WindowsJob:
    """What the service is told to do, with a ledger of the folder."""
    words = SERVICES["release"]["command"]
    assert words[:2] == ["beam-dp", "release-windows"]
    given = [word.replace("${START:?must be in .env}", START) for word in words[2:]]
    ledger = f"--ledger=sqlite:///{folder}/budgets"
    return release_windows.parse_arguments(
        [ledger if word.startswith("--ledger=") else word for word in given]
    )


def test_docker_compose_release_is_paid_from_the_declared_budget(folder, capsys):
    """What is declared is what the release protects; its flags are the program's and Beam's."""
    (command, name), url = SERVICES["budget"]["command"][:2], SERVICES["budget"]["command"][2]
    assert (command, name, url) == ("beam-dp", "ledger", flags("release")["ledger"])
    ledger = f"sqlite:///{folder}/budgets"
    assert cli([name, ledger, *SERVICES["budget"]["command"][3:]]) == 0
    assert cli([name, ledger, *SERVICES["budget"]["command"][3:]]) == 0, "it is started again"
    capsys.readouterr()
    job = release_job(folder)
    Ledger(ledger).check(job.dataset_id, job.plan.guarantee, job.plan.loss)
    assert f"--flink_master={flags('job-server')['flink-master']}" in job.beam_flags


def test_arriving_files_have_the_released_columns(folder):
    (file,) = (folder / "landing").iterdir()
    header, *rows = file.read_text(encoding="utf-8").splitlines()
    domain = yaml.safe_load((folder / "visits.json").read_text(encoding="utf-8"))
    names = [attribute["name"] for attribute in domain["attributes"]]
    asked = flags("release")
    assert header.split(",") == [asked["event_time"], asked["privacy_unit"], *names]
    assert len(rows) == 500


def test_services_find_each_other():
    server, workers = flags("job-server"), SERVICES["workers"]
    # What the job server calls itself is where programs send their files.
    assert server["job-host"] in SERVICES
    assert flags("release")["job_endpoint"] == f"{server['job-host']}:8099"
    assert server["flink-master"].partition(":")[0] in SERVICES
    properties = yaml.safe_load(COMPOSE["x-flink"]["environment"]["FLINK_PROPERTIES"])
    assert properties["jobmanager.rpc.address"] == server["flink-master"].partition(":")[0]
    # Flink asks its own host for workers; Beam's boot program listens on that port.
    assert workers["network_mode"] == "service:task-manager"
    assert (workers["command"], flags("release")["environment_config"]) == (
        "--worker_pool",
        "localhost:50000",
    )
    assert "'localhost', 50000" in workers["healthcheck"]["test"][-1]
    database = SERVICES["ledger"]["environment"]
    url = f"postgresql://{database['POSTGRES_USER']}@ledger/{database['POSTGRES_DB']}"
    assert flags("release")["ledger"] == url and url in MANUAL


def test_services_publish_no_port_and_no_password():
    assert COMPOSE["networks"]["default"] == {"internal": True}
    for service in SERVICES.values():
        assert "ports" not in service
        for name, value in (service.get("environment") or {}).items():
            assert "PASSWORD" not in name or value == "${LEDGER_PASSWORD:?must be in .env}"
    assert "LEDGER_PASSWORD=$(" in MANUAL


def test_services_share_volumes_and_those_that_are_waited_for_tell_their_health():
    assert SERVICES["workers"]["volumes"] == SERVICES["release"]["volumes"]
    for name in ("job-server", "task-manager"):
        assert SERVICES[name]["volumes"][0].startswith("staged:/tmp/beam-artifact-staging")
    for service in SERVICES.values():
        for name, asked in service.get("depends_on", {}).items():
            has_check = "healthcheck" in SERVICES[name]
            assert has_check == (asked["condition"] == "service_healthy"), name


def test_pinned_versions_satisfy_the_package():
    """Beam's is the one of the image that the boot program is taken from."""
    assert pinned()["apache-beam"] == arguments()["BEAM"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stated = [*project["dependencies"]]
    for extra in arguments()["EXTRAS"].split(","):
        stated += project["optional-dependencies"][extra]
    needed = [Requirement(each) for each in stated]
    assert {"numpy", "opendp", "apache-beam", "confluent-kafka"} <= {each.name for each in needed}
    assert [
        str(each) for each in needed if pinned()[canonicalize_name(each.name)] not in each.specifier
    ] == []


def test_contents_are_listed_for_others_to_read():
    """Each package with its licence, in a form that the library of the format's makers accepts."""
    if shutil.which("dpkg-query") is None:
        pytest.skip("not Debian")
    program = [sys.executable, ROOT / "deploy" / "images" / "contents.py"]
    text = subprocess.check_output(program, text=True)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    parts = {part["purl"].partition("@")[0]: part for part in json.loads(text)["components"]}
    assert parts["pkg:pypi/psycopg"]["licenses"] == [{"expression": "LGPL-3.0-only"}]
    assert parts["pkg:pypi/beam-dp"]["licenses"] == [{"license": {"name": "Apache-2.0"}}]
    assert "pkg:deb/debian/libc6" in parts
    assert [place for place, part in parts.items() if part.get("licenses") == []] == []


def test_services_are_confined_and_have_the_memory_that_beam_is_asked_for(folder):
    for service in SERVICES.values():
        assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["mem_limit"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    plan = release_job(folder).plan
    processes = int(flags("release")["parallelism"])
    needed = processes * worker_bytes(plan, plan.workload.domain.num_cells)
    assert SERVICES["workers"]["mem_limit"] == f"{2 * needed // 2**30}g"


def test_images_have_matching_versions():
    named = {name.partition(":")[0]: name.partition(":")[2] for name in stand_ins()}
    flink = ".".join(named["flink"].split(".")[:2])
    assert flink in FlinkRunnerOptions.PUBLISHED_FLINK_VERSIONS
    assert f"<flink.version>{flink}<" in (ROOT / "deploy" / "flink" / "pom.xml").read_text(
        encoding="utf-8"
    )
    assert named[f"apache/beam_flink{flink}_job_server"] == arguments()["BEAM"]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.findall(r'^version = "(.+)"', project, re.M) == [arguments()["VERSION"]]


def test_docker_build_context_has_only_needed_files(tmp_path):
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    allowed = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines and all((ROOT / name).exists() for name in allowed)
    copy_sources(tmp_path / "sources")
    assert {path.name for path in (tmp_path / "sources").iterdir()} <= allowed
    copied = [line.split()[-2] for line in DOCKERFILE.splitlines() if line.startswith("COPY")]
    ours = {name.rpartition("/")[0] or name for name in copied if not name.startswith("/")} - {"."}
    assert ours <= allowed


def test_commands_in_the_manual_exist(capsys):
    lines = re.findall(r"^    (?:docker compose|docker build|docker run) .*$", MANUAL, re.M)
    assert len(lines) > 5
    for line in lines:
        words = shlex.split(line, comments=True)
        for word in words:
            assert "examples/" not in word or (ROOT / word.removeprefix("../")).exists()
        if "beam-dp" in words:
            name = words[words.index("beam-dp") + 1]
            with pytest.raises(SystemExit) as ended:
                cli([name, "--help"] if not name.startswith("-") else [name])
            assert ended.value.code == 0, line
    targets = set(re.findall(r"--target (\w+)", MANUAL))
    assert targets <= set(re.findall(r"^FROM \S+ AS (\w+)$", DOCKERFILE, re.M))
    assert set(re.findall(r"PROGRAM=(\w+)", MANUAL + DOCKERFILE)) - {"{PROGRAM}"} <= set(PROGRAMS)
