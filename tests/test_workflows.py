"""The workflows of continuous integration name what exists, and run pinned actions.

``tests/wheel/test_workflow_steps.py`` runs the steps that install the wheel.
"""

import itertools
import os
import re
import subprocess

import pytest
from interpreters import named_versions
from newcomers import reading_line
from package_sources import ROOT
from workflows import ALL, Step, steps

PUBLISH = steps("wheels.yml", "publish")
STEPS = [step for file in ALL for job in ALL[file]["jobs"] for step in steps(file, job)]
TOP = {path.name for path in ROOT.iterdir()} - {"dist", "build"}
PATH = re.compile(r"[\w.*-]+(?:/[\w.*-]+)+/?")


def paths_in(text: str) -> list[str]:
    """The files and folders of the checkout that a text names."""
    return [word for word in PATH.findall(text) if word.partition("/")[0] in TOP]


def targets_in(step: Step) -> list[str]:
    return re.findall(r"^\s*make ([\w-]+)", step.get("run", ""), re.M)


def test_workflows_name_existing_paths_and_targets():
    watched = [
        path
        for file in ALL
        for event in ALL[file]["on"].values()
        if isinstance(event, dict)
        for path in event.get("paths", [])
        if not path.startswith("**")
    ]
    named = [path for step in STEPS for path in paths_in(str(step.get("run", "")))]
    assert {"tests/golden", "tests/hashing"} <= {*named}
    assert [path for path in {*named, *watched} if not [*ROOT.glob(path)]] == []
    made = re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text("utf-8"), re.M)
    targets = {target for step in STEPS for target in targets_in(step)}
    assert {"test", "test-jobs", "test-part", "test-release", "dist", "judges"} == targets
    assert targets <= {*made}


def test_a_path_that_is_gone_is_found():
    paths = paths_in("beam-dp answer tests/golden/nothing_1 --marginal a; ls tools/*.txt dist/x")
    assert paths == ["tests/golden/nothing_1", "tools/*.txt"]
    assert [path for path in paths if not [*ROOT.glob(path)]] == ["tests/golden/nothing_1"]


@pytest.mark.parametrize("file", ALL)
def test_actions_are_pinned_by_commit_with_their_versions(file):
    lines = (ROOT / ".github" / "workflows" / file).read_text("utf-8").splitlines()
    used = [line for line in lines if re.match(r" *(?:- )?uses:", line)]
    assert used
    pinned = re.compile(r" *(?:- )?uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    assert [line for line in used if not pinned.fullmatch(line)] == []


def test_an_action_has_the_same_commit_everywhere():
    found = {tuple(step["uses"].split("@")) for step in STEPS if "uses" in step}
    names = sorted(name for name, _ in found)
    assert [name for name, same in itertools.groupby(names) if len([*same]) > 1] == []


def test_wheels_are_tried_in_every_supported_python_and_installed_as_in_the_readme():
    job = ALL["wheels.yml"]["jobs"]["try"]
    assert job["strategy"]["matrix"]["python"] == named_versions()
    ours, others = re.findall(r"pip install (.*)", job["steps"][3]["run"])
    assert ours == "$OURS beam_dp" and "--no-deps" in job["env"]["OURS"]
    assert others.split() == [word for word in reading_line("") if word]


def test_only_tags_are_published_and_only_after_every_trial():
    job = ALL["wheels.yml"]["jobs"]["publish"]
    assert job["if"] == "github.event_name == 'push' && startsWith(github.ref, 'refs/tags/v')"
    assert job["needs"] == ["linux", "others", "try"]
    assert job["permissions"] == {"id-token": "write"}
    assert all(ALL[file]["permissions"] == {"contents": "read"} for file in ALL)


@pytest.mark.parametrize(("tag", "code"), [("v0.1.0", 0), ("v0.1.1", 2), ("v0.1", 2)])
def test_tag_must_be_the_version(tag, code, tmp_path):
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "beam_dp-0.1.0.tar.gz").touch()
    (step,) = (step for step in PUBLISH if step.get("name") == "the tag is the version")
    command = ["bash", "-eo", "pipefail", "-c", step["run"]]
    environment = {**os.environ, "GITHUB_REF_NAME": tag}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert done.returncode == code
