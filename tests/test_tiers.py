"""The plugin that chooses the tests of a run: by tier, by part, and by what changed."""

import hashlib
import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest
import tiers

pytest_plugins = ["pytester"]
TESTS = """
    import pytest

    def test_cheap(): pass

    @pytest.mark.job
    def test_job(): pass

    @pytest.mark.part
    @pytest.mark.parametrize("case", range(80))
    def test_dear(case): pass

    @pytest.mark.part
    @pytest.mark.depends_on("beam_dp.mechanisms.one")
    @pytest.mark.parametrize("case", range(80))
    def test_audit(case): pass

    @pytest.mark.release
    def test_last(): pass
"""


@pytest.fixture
def checkout(pytester, monkeypatch):
    """A repository with two modules, whose commit is recorded."""
    pytester.makepyfile(TESTS)
    pytester.makeini("[pytest]\nmarkers =\n  job\n  part\n  release\n  depends_on")
    for name in ("mechanisms/one", "privacy/noise/source"):
        path = pytester.path / f"beam_dp/{name}.py"
        path.parent.mkdir(parents=True)
        path.write_text(f"import os\n\n\ndef {path.stem}():\n    return 1\n")
    for name in ("ROOT", "RECORDED_RUN", "COSTS"):
        place = {"ROOT": "", "RECORDED_RUN": "recorded_run.json", "COSTS": "costs.json"}[name]
        monkeypatch.setattr(tiers, name, pytester.path / place)
    git(pytester.path, "init", "--quiet")
    git(pytester.path, "add", "beam_dp")
    who = ("-c", "user.name=a", "-c", "user.email=b")
    git(pytester.path, *who, "commit", "--quiet", "--message", "first")
    commit = git(pytester.path, "rev-parse", "HEAD")
    tiers.RECORDED_RUN.write_text(json.dumps({"commit": commit}))
    return pytester


def git(folder, *arguments):
    run = subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return run.stdout.strip()


def chosen(pytester, *options):
    """The names of the tests that a run would take, without their cases, and how many of each."""
    run = pytester.runpytest_inprocess("-p", "tiers", "--collect-only", "--quiet", *options)
    names = [line.split("::")[1].partition("[")[0] for line in run.outlines if "::" in line]
    return {name: names.count(name) for name in names}


def test_run_takes_the_tests_of_its_tiers(checkout):
    assert chosen(checkout) == {"test_cheap": 1}
    assert chosen(checkout, "--tiers", "job") == {"test_job": 1}
    assert chosen(checkout, "--tiers", "release") == {"test_last": 1}
    everything = {"test_cheap": 1, "test_job": 1, "test_dear": 80, "test_audit": 80, "test_last": 1}
    assert chosen(checkout, "--tiers", "all") == everything
    assert chosen(checkout, "--tiers", "tset") == {}


def test_case_that_was_dear_runs_with_the_jobs(checkout):
    (test_file,) = (path.name for path in checkout.path.glob("test_*.py"))
    tiers.COSTS.write_text(json.dumps({f"{test_file}::test_cheap": 0.2}))
    assert chosen(checkout) == {}
    assert chosen(checkout, "--tiers", "job") == {"test_cheap": 1, "test_job": 1}


def test_eight_parts_take_every_case_once(checkout):
    parts = [chosen(checkout, "--tiers", "part", "--part", str(part)) for part in range(8)]
    for name in ("test_dear", "test_audit"):
        assert sum(part.get(name, 0) for part in parts) == 80
        assert max(part.get(name, 0) for part in parts) < 30
    own = [chosen(checkout, "--tiers", "part") for _ in range(2)]
    assert own[0] == own[1] and own[0] in parts


def test_all_audits_of_a_changed_module_run(checkout):
    unchanged = chosen(checkout, "--tiers", "part")
    module = checkout.path / "beam_dp/mechanisms/one.py"
    module.write_text("import sys\n\n\n" + module.read_text())
    assert chosen(checkout, "--tiers", "part") == unchanged
    module.rename(module.with_name("two.py"))
    assert chosen(checkout, "--tiers", "part") == unchanged
    module.write_text("def one():\n    return 2\n")
    assert chosen(checkout, "--tiers", "part") == {**unchanged, "test_audit": 80}


@pytest.mark.parametrize("change", ["noise", "no record"])
def test_all_audits_run_if_noise_changed_or_nothing_is_recorded(checkout, change):
    if change == "noise":
        (checkout.path / "beam_dp/privacy/noise/source.py").write_text(
            "def source():\n    return 2\n"
        )
    else:
        tiers.RECORDED_RUN.unlink()
    assert chosen(checkout, "--tiers", "part")["test_audit"] == 80


def test_the_dearest_of_too_many_audits_are_left_out_by_name(checkout):
    tiers.RECORDED_RUN.unlink()
    run = checkout.runpytest_inprocess("-p", "tiers", "--tiers", "part", "--collect-only", "-q")
    names = [line for line in run.outlines if "::test_audit" in line]
    assert len(names) == 80
    tiers.COSTS.write_text(json.dumps({name: 10.0 + index for index, name in enumerate(names)}))
    run = checkout.runpytest_inprocess("-p", "tiers", "--tiers", "part", "-v")
    ran = {line.partition(" PASSED")[0] for line in run.outlines if " PASSED" in line}
    cut = [line for line in run.outlines if line in names]
    assert cut and {*names} == {*cut} | (ran & {*names}) and not ran & {*cut}
    costs = tiers.recorded_costs()
    spent = [costs[name] for name in ran & {*names} - own_part(names)]
    assert sum(spent) <= tiers.CHANGED_SECONDS < sum(spent) + min(costs[name] for name in cut)
    assert max(spent) < min(costs[name] for name in cut)


def test_worker_processes_run_the_same_part_and_seed(checkout):
    checkout.makepyfile(
        test_seeds="""
        import pytest

        @pytest.mark.parametrize("case", range(4))
        def test_seed(request, case):
            print("seed", request.config.option.seed)
        """
    )
    options = ("--tiers", "test,part", "--part", "", "--seed", "fresh", "-n", "2", "-rP")
    run = checkout.runpytest_inprocess("-p", "tiers", "-p", "seeds", *options)
    (told,) = (line.split()[1] for line in run.outlines if line.startswith("seed: "))
    assert {line.split()[1] for line in run.outlines if line.startswith("seed ")} == {told}


@pytest.mark.job
@pytest.mark.parametrize("options, tried", [((), 7), (("--seed", "5"), 35)])
def test_runs_before_a_release_try_more_examples(pytester, monkeypatch, options, tried):
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(tiers.__file__).parent))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makepyfile(
        """
        from hypothesis import given, settings, strategies as st

        class TestNumbers:
            @settings(max_examples=7)
            @given(st.integers())
            def test_number(self, number): print("tried")
        """
    )
    run = pytester.runpytest_subprocess("-p", "seeds", "-s", *options)
    assert str(run.stdout).count("tried") == tried


def own_part(names):
    """Those of the tests that are in the part of this tree."""
    part = tiers.part_of_tree()
    digests = {name: hashlib.sha256(name.encode()).digest()[:4] for name in names}
    return {name for name in names if int.from_bytes(digests[name]) % tiers.NUM_PARTS == part}


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
