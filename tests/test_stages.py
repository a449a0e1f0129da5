"""The table of what a run took: scaled to one machine, beside the recorded run."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import sys

import pytest

PATH = pathlib.Path(__file__).resolve().parent.parent / "tools/stages.py"


@pytest.fixture
def stages(monkeypatch):
    """The script, on a machine half as fast as the limits are for."""
    spec = importlib.util.spec_from_file_location("stages", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "import_seconds", lambda: 2 * module.IMPORT_SECONDS)
    monkeypatch.setattr(module, "git", lambda *_: "c0ffee")
    return module


def noted(folder, **codes):
    for name, code in codes.items():
        stage = {"name": name, "code": code, "cpu": 100.0, "elapsed": 60.0}
        with (folder / "stages").open("a") as file:
            file.write(json.dumps(stage) + "\n")
    tests = {f"tests/noise/test_a.py::test_{n}": {"seconds": n, "tier": "job"} for n in range(30)}
    (folder / "pool.json").write_text(json.dumps(tests))


def test_green_run_is_recorded_without_what_it_fetched(stages, tmp_path, capsys):
    record = tmp_path / "recorded"
    record.write_text(json.dumps({"stages": {"pool": {"cpu": 45, "elapsed": 9}}}))
    noted(tmp_path, **{"fetch-system": 0, "pool": 0, "test": 0})
    assert stages.report(tmp_path, record, "7") == 0
    found = json.loads(record.read_text())
    assert (found["cpu"], found["commit"], found["seed"]) == (100, "c0ffee", "7")
    assert found["stages"]["pool"] == {"cpu": 50, "elapsed": 60}
    assert found["tiers"] == {"job": 218} and found["folders"] == {"tests/noise": 218}
    assert [*found["dearest"].values()][:2] == [14.5, 14.0] and len(found["dearest"]) == 20
    out = capsys.readouterr().out
    assert "CPU of this run, without what it fetched: 100 s" in out and "     50     +5" in out


def test_red_run_is_not_recorded(stages, tmp_path):
    noted(tmp_path, pool=0, test=1)
    assert stages.report(tmp_path, tmp_path / "recorded.json", None) == 1
    assert not (tmp_path / "recorded.json").exists()


def test_stage_notes_its_exit_code_and_gives_its_tests_a_file(stages, tmp_path):
    write = "import os, pathlib; option = os.environ['PYTEST_OPTIONS'].split('--costs=')[-1];"
    command = [sys.executable, "-c", write + "pathlib.Path(option).write_text('{}'); exit(3)"]
    assert stages.run(tmp_path, "pool", command) == 3
    stage = json.loads((tmp_path / "stages").read_text())
    assert (stage["name"], stage["code"]) == ("pool", 3)
    assert (tmp_path / "pool.json").read_text() == "{}"


def test_costs_of_dear_tests_are_written_by_name(stages, tmp_path):
    noted(tmp_path, pool=0)
    costs = tmp_path / "costs"
    costs.write_text(json.dumps({"tests/noise/test_a.py::test_3": 0.2, "other": 0.3}))
    stages.write_costs(tmp_path, costs, is_whole=False)
    written = json.loads(costs.read_text())
    assert len(written) == 30 and written["tests/noise/test_a.py::test_3"] == 1.5
    stages.write_costs(tmp_path, costs, is_whole=True)
    assert {*written} - {*json.loads(costs.read_text())} == {"other"}
