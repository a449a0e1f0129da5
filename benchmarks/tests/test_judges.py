"""The judges of ``benchmarks/judges``, as far as they can be tested without their environments."""

from __future__ import annotations

import ast
import importlib
import pathlib
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from benchmarks.judges.environment import FOLDER, Environment
from benchmarks.page_regions import REGIONS

pytestmark = pytest.mark.part
JUDGES = sorted(path.parent.name for path in FOLDER.glob("*/rows.py"))
ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", JUDGES)
def test_requirements_are_pinned(name):
    lines = (FOLDER / name / "requirements.txt").read_text("utf-8").splitlines()
    packages = [line.split("#")[0].strip() for line in lines]
    assert [each for each in packages if each and "==" not in each] == []
    assert all(each.replace("==", " ") in Environment(name).versions() for each in packages if each)


@pytest.mark.parametrize("name", JUDGES)
def test_programs_can_be_read(name):
    assert callable(importlib.import_module(f"benchmarks.judges.{name}.rows").rows)
    ast.parse((FOLDER / name / "asked.py").read_text("utf-8"))


@pytest.mark.parametrize("name", JUDGES)
def test_what_was_recorded_is_shown(name):
    page = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    assert f"judges/{name}.json" in REGIONS
    assert f"<!-- recorded: judges/{name}.json -->" in page


def test_names_the_judges_if_one_is_unknown():
    command = [sys.executable, "benchmarks/judges/judge.py", "nits"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "'nits' is not a judge; valid: " in run.stderr and "nist" in run.stderr


def test_adapter_has_the_types_of_the_table_and_as_many_rows_as_asked():
    """As SDV calls it, and as SDGym: a frame for a frame, and metadata as a dict."""
    adapter = importlib.import_module("benchmarks.judges.synthesizers.adapter")
    draws = np.random.default_rng(1)
    ages = draws.integers(20, 60, 2000)
    frame = pd.DataFrame({"id": range(2000), "age": ages, "code": ages // 20})
    kinds = {"id": "id", "age": "numerical", "code": "categorical"}
    table = {"columns": {name: {"sdtype": kind} for name, kind in kinds.items()}}
    with pytest.raises(ValueError, match="fit must be called first"):
        adapter.PrivateSynthesizer(table).sample(1)
    fitted = adapter.get_trained_synthesizer(frame, {"tables": {"people": table}})
    assert fitted.release.guarantee.epsilon == 1.0
    for num_rows in (10, 5000):
        rows = adapter.sample_from_synthesizer(fitted, num_rows)
        assert list(rows) == list(frame) and len(rows) == num_rows
        assert (rows.dtypes == frame.dtypes).all()
        assert {*rows["id"]} == {*range(num_rows)}
        assert {*rows["code"]} <= {1, 2}
