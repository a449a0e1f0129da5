"""What ``import beam_dp`` offers, and how little it loads."""

from __future__ import annotations

import subprocess
import sys

from source_imports import ROOT

import beam_dp


def run_python(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return result.stdout.strip()


def test_importing_the_package_does_not_load_heavy_libraries():
    loaded = run_python("import sys, beam_dp; print(*sys.modules)").split()
    heavy = {"apache_beam", "pyarrow", "scipy", "opendp", "dp_accounting", "fastavro", "rich"}
    assert not {*heavy, "sqlalchemy"} & set(loaded)


def test_importing_the_package_adds_few_modules_to_numpy():
    added = "import beam_dp; print(*{*sys.modules} - before)"
    assert len(run_python(f"import sys, numpy; before = {{*sys.modules}}; {added}").split()) < 10


def test_every_public_name_exists():
    assert [name for name in beam_dp.__all__ if not hasattr(beam_dp, name)] == []


def test_names_for_sparse_queries_are_public():
    configurations = {"CountSketch", "HybridSketch", "SparseProject", "StabilityHistogram"}
    pipelines = {"AnswerSparseQueries", "KeyColumns", "ReleaseProjection"}
    planning = {"KeyProfile", "SparsePlanningJob", "rank_sparse_mechanisms", "plan_sparse_release"}
    queries = {"SparseQuery", "read_sparse_query", "row_conjunction", "row_parity"}
    online = {"SparseMW", "plan_sparse_mw", "release_sparse", "SparseRelease"}
    public = {*beam_dp.__all__}
    assert configurations | pipelines | planning | queries | online <= public
