"""Records limited by what their unit costs, in a pipeline and in memory."""

from __future__ import annotations

import ast
import pathlib

import apache_beam as beam
import numpy as np
import pandas as pd
from fakes import COLLECTED, collect, pipeline

import beam_dp
import beam_dp.in_memory as release_table
from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.marginals.mwem import MWEM
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import marginals
from beam_dp.transforms.counting.summarise import limited_records

DOMAIN = Domain((IntegerAttribute("a", 0, 2), IntegerAttribute("b", 0, 3)))


def test_a_pipeline_keeps_what_memory_keeps_and_more_than_a_number_would() -> None:
    rng = np.random.default_rng(2)
    person = np.repeat(np.arange(60), rng.integers(1, 40, 60))
    table = pd.DataFrame(
        {
            "a": rng.integers(0, 3, person.size),
            "b": rng.integers(0, 4, person.size),
            "person": person,
        }
    )
    guarantee = Guarantee(1.0, 1e-9, "add_or_remove_one", "person", 30)
    plan = MWEM(max_unit_cost=8.0).plan(DOMAIN, marginals(DOMAIN, ways=2), guarantee, "noisy")
    with pipeline() as running:
        records = running | beam.Create([table.iloc[300:], table.iloc[:300]])
        inside, _ = limited_records(
            records, DOMAIN, guarantee, as_cells=True, unit_costs=plan.unit_costs
        )
        _ = inside | collect("kept")
    cells = np.concatenate([each.cell_index(DOMAIN) for each in COLLECTED["kept"]])
    exact, _ = release_table._count(plan, release_table.Table(table), ["a", "b", "person"])
    assert np.bincount(cells, minlength=12).tolist() == exact.marginal(("a", "b")).ravel().tolist()
    by_number = np.minimum(table.groupby("person").size(), 8).sum()
    assert by_number < cells.size < len(table)


def defaults(source: str) -> list[str]:
    """The functions that may be called without a limit of costs that they take."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            positional = given.posonlyargs + given.args
            optional = positional[len(positional) - len(given.defaults) :]
            pairs = zip(given.kwonlyargs, given.kw_defaults, strict=True)
            optional += [each for each, default in pairs if default is not None]
            names = {each.arg for each in optional} & {"unit_costs", "cost_limit"}
            found += [f"{node.name}: {name}" for name in names]
    return found


def test_no_step_has_a_default_for_the_limit_of_costs() -> None:
    package = pathlib.Path(beam_dp.__file__).parent
    sources = {path.name: path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    assert {name: found for name, source in sources.items() if (found := defaults(source))} == {}
    assert sum("cost_limit" in source for source in sources.values()) > 3
    assert defaults("def f(a, cost_limit=None): ...") == ["f: cost_limit"]
    assert defaults("def f(*, unit_costs=None, b): ...") == ["f: unit_costs"]
