"""No step that sees records reveals them, whatever error it fails with.

By structure: each method that a runner hands elements to is guarded, but for those named below.
By behaviour: an error that quotes a record is raised in a guarded step of each kind that Beam has,
and the one that leaves the job quotes nothing.
"""

from __future__ import annotations

import ast
import functools
import importlib
import operator
import pathlib
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from fakes import DOMAIN, WORKLOAD, NoPrivacy, guarantee, pipeline

import beam_dp as dp
import beam_dp.transforms
from beam_dp.secret.summaries.histogram import HistogramAccumulator
from beam_dp.transforms.counting.count_windows import CountWindows
from beam_dp.transforms.job_page import PrivateStepError

FOLDER = pathlib.Path(beam_dp.transforms.__file__).parent
# Methods that a runner calls without elements, before a bundle holds any.
WITHOUT_ELEMENTS = {"setup", "start_bundle", "create_accumulator"}
# Steps without a guard, and why they need none.
UNGUARDED = {
    "read._SplitFile.process": "sees names of files, and becomes the file's name if it fails",
    "read._ReadRange.process": "becomes the file's name if it fails",
    "read.list_files": "sees the pattern",
    "count_keys.self._encode": "is a DoFn, whose methods are guarded",
    "released_rows._read_rows": "sees a committed release",
    "windows._windows": "sees the name of a folder",
    "released_rows.self.arguments": "are names and declared attributes",
    "released_rows.self.rows": "sees committed releases",
    "writing._Divide.process": "sees a release",
    "writing._WriteFile.process": "sees rows that are public",
    "writing._WriteFile.finish_bundle": "sees rows that are public",
    "writing._Commit.process": "sees a release",
    "answers._WriteRun.process": "sees answers that are public",
    "answers._WriteBatch.process": "sees answers that are public",
    "answers._by_run": "sees answers that are public",
    "summarise._AddShards.extract_output": "calls nothing but compact, which is guarded",
    "read_kafka._ReadPartition.process": "looks at times; decodes under a guard",
    "read_kafka._Partitions.initial_restriction": "sees a number of a partition",
    "read_kafka._Partitions.create_tracker": "sees offsets",
    "read_kafka._Partitions.restriction_size": "sees offsets",
    "read_kafka._Partitions.truncate": "sees offsets",
    "read_arrivals.self.polling.replayed": "sees the pattern, and names of files",
    "count_windows._OfEachWindow.process": "sees nothing",
    "count_windows._NumberPane.process": "looks at the window alone",
    "count_windows._NumberBlock.process": "looks at the window alone",
    "windows._shards": "looks at a key alone, which holds nothing of a record",
    "windows._Commit.process": "sees a release",
    "answer_queries._Batch.process": "sees queries, which are no records",
    "answer_queries._Batch.finish_bundle": "sees queries, which are no records",
}
STEP_KINDS = {"DoFn", "CombineFn", "PartitionFn", "RestrictionProvider"}
# Beam's transforms that may be given a function.
OF_FUNCTIONS = {
    "Map", "MapTuple", "FlatMap", "FlatMapTuple", "Filter", "ParDo", "CombineGlobally",
    "CombinePerKey", "CombineValues", "GroupBy", "Partition",
}  # fmt: skip


def transform_sources() -> dict[str, str]:
    """By the names of modules, which must be unique; doors have no steps."""
    paths = [path for path in FOLDER.rglob("*.py") if path.stem != "__init__"]
    sources = {path.stem: path.read_text(encoding="utf-8") for path in paths}
    assert len(sources) == len(paths), "two modules of one name hide each other's steps"
    return sources


def steps(sources: dict[str, str]) -> Iterator[tuple[str, bool]]:
    """Every method or function that is given elements, and whether it is guarded."""
    trees = {module: ast.parse(source) for module, source in sources.items()}
    of_modules = {module: functions_of(tree) for module, tree in trees.items()}
    imported = functools.reduce(operator.or_, of_modules.values())
    for module, tree in trees.items():
        functions = imported | of_modules[module]
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and kinds_of(node) & STEP_KINDS:
                for method in node.body:
                    if isinstance(method, ast.FunctionDef) and is_beams(method.name, node):
                        yield f"{module}.{node.name}.{method.name}", is_guarded(method)
            if isinstance(node, ast.Call) and called(node) in OF_FUNCTIONS:
                for each in node.args:
                    if isinstance(each, ast.Lambda | ast.Attribute):
                        yield f"{module}.{ast.unparse(each)}", False
                    elif isinstance(each, ast.Name) and each.id in functions:
                        yield f"{module}.{each.id}", is_guarded(functions[each.id])


def functions_of(tree: ast.AST) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def kinds_of(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).rpartition(".")[2] for base in node.bases}


def is_beams(method: str, node: ast.ClassDef) -> bool:
    """Whether a runner calls the method with elements, or behind some: not a helper of ours."""
    known = {name for kind in kinds_of(node) for name in dir(getattr(beam, kind, object))}
    return method in known - WITHOUT_ELEMENTS and not method.startswith("__")


def called(node: ast.Call) -> str:
    return ast.unparse(node.func).rpartition(".")[2]


def is_guarded(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(each) == "withhold_messages" for each in function.decorator_list)


def test_every_step_withholds_errors_in_a_job_or_is_listed_as_exempt():
    found = dict(steps(transform_sources()))
    assert {name for name, guarded in found.items() if not guarded} == set(UNGUARDED)
    guarded = {name for name, is_safe in found.items() if is_safe}
    assert guarded > {*FAULTS} and len(guarded) > 30


def test_check_finds_step_that_does_not_withhold_errors():
    for source in (
        "class A(beam.DoFn):\n    def process(self, record): ...",
        "class A(DoFn):\n    def teardown(self): ...",
        "class A(beam.CombineFn):\n    def extract_output(self, accumulator): ...",
        "def f(record): ...\nbeam.Map(f)",
        "beam.Map(lambda record: record)",
        "beam.CombinePerKey(module.f)",
    ):
        assert [guarded for _, guarded in steps({"x": source})] == [False], source


class CanaryError(Exception):
    """What a library that quotes a record would raise."""


QUOTED = "canary-4711"  # by its name, for tracebacks show code


def fail(*_: Any, **__: Any) -> Any:
    raise CanaryError(QUOTED)


RECORDS = [{"age": i % 10, "sex": "fm"[i % 2], "smokes": None, "person": i} for i in range(40)]
JOBS: dict[str, Callable[[Any], Any]] = {
    "database": lambda records: (
        records | dp.ReleaseSyntheticDatabase(DOMAIN, WORKLOAD, guarantee("person", 2), NoPrivacy())  # type: ignore[arg-type]
    ),
    "intervals": lambda records: records | dp.ReleaseIntervals(DOMAIN, "age", guarantee()),
    "windows": lambda records: (
        records
        | CountWindows(
            DOMAIN,
            dp.Horizon(0, 20, 2, 0),
            dp.WindowUnit("person", 2, 1, 2),
            "age",
            "age",
            unit_costs=None,
        )
    ),
}


def shards_twice(accumulator: HistogramAccumulator, state: Any) -> Iterator[tuple[int, bytes]]:
    """A bundle with two shards of each block, which have to be added."""
    shards = list(TO_SHARDS(accumulator, state))
    return iter(shards * 2)


TO_SHARDS = HistogramAccumulator.to_shards
TWICE = {"summarise.HistogramAccumulator.to_shards": shards_twice}
# A step of each kind that Beam has, a job with it, and what is replaced so that this step fails.
FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "summarise._Encode.process": ("intervals", {"summarise.encode_records": fail}),
    "summarise._CountBundle.finish_bundle": (
        "intervals",
        {"summarise.HistogramAccumulator.to_shards": fail},
    ),
    "summarise._AddShards.add_input": ("intervals", {**TWICE, "summarise.sum_shards": fail}),
    "summarise._AddShards.compact": ("intervals", {**TWICE, "summarise.write_shard": fail}),
    "summarise._AddShards.merge_accumulators": ("intervals", {"summarise.merge_shards": fail}),
    "limit_contributions._Select.process": (
        "database",
        {"limit_contributions.select_records": fail},
    ),
    "count_windows._CountInOrder.process": ("windows", {"count_windows.select_records": fail}),
    "one_worker.Draw.process": ("database", {"one_worker.release_shards": fail}),
}


@pytest.mark.job
@pytest.mark.parametrize("step", FAULTS)
def test_no_step_raises_an_error_that_quotes_a_record(step, monkeypatch, caplog):
    job, replaced = FAULTS[step]
    for name, replacement in replaced.items():
        module, _, attribute = name.partition(".")
        (path_of_module,) = FOLDER.rglob(f"{module}.py")
        folder = path_of_module.parent.name
        owner: Any = importlib.import_module(f"beam_dp.transforms.{folder}.{module}")
        *path, attribute = attribute.split(".")
        for each in path:
            owner = getattr(owner, each)
        monkeypatch.setattr(owner, attribute, replacement)
    with pytest.raises(PrivateStepError) as error, pipeline() as p:
        _ = JOBS[job](p | beam.Create(RECORDS))
    assert QUOTED not in "".join(traceback.format_exception(error.value))
    assert QUOTED not in caplog.text
    module, _, method = step.split(".")
    frames = traceback.extract_tb(error.value.__traceback__)
    assert (f"{module}.py", method) in {(pathlib.Path(f.filename).name, f.name) for f in frames}
