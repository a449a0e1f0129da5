"""Linear queries: their values at every cell, as written and as stored; invalid queries."""

import numpy as np
import pytest

import beam_dp as dp
from beam_dp.queries.linear import VALUE_BITS, Parity, Product, negation

DOMAIN = dp.Domain(
    (
        dp.IntegerAttribute("age", 18, 24, nullable=True),
        dp.CategoricalAttribute("degree", ("HS", "BA", "MA"), other=True),
        dp.IntegerAttribute("only", 5, 5),
        dp.NumericAttribute("income", (0.0, 10.0, 20.0, 50.0)),
        dp.BooleanAttribute("member"),
    )
)
QUERIES = dp.LinearQueries(DOMAIN)

# Each with a function that computes a cell's weight from its decoded levels.
WRITTEN = {
    "all": ({"conjunction": {}}, lambda r: 1),
    "cell": (
        {"conjunction": {"age": 20, "degree": "BA", "income": [[10, 20]], "member": True}},
        lambda r: r["age"] == 20 and r["degree"] == "BA" and r["income"] == 15 and r["member"],
    ),
    "negated": (
        {"conjunction": {"age": {"not": 20}, "degree": {"not": ["BA", "other"]}}},
        lambda r: r["age"] != 20 and r["degree"] in ("HS", "MA"),
    ),
    "any of": (
        {"conjunction": {"age": [18, 21, None], "member": {"not": True}}},
        lambda r: r["age"] in (18, 21, None) and not r["member"],
    ),
    "everything of one": ({"conjunction": {"only": 5, "member": True}}, lambda r: r["member"]),
    "interval": (
        {"interval": {"attribute": "age", "low": 19, "high": 22}},
        lambda r: r["age"] is not None and 19 <= r["age"] <= 22,
    ),
    "bins": (
        {"interval": {"attribute": "income", "low": 10, "high": 50}},
        lambda r: r["income"] > 10,
    ),
    "declared order": (
        {"interval": {"attribute": "degree", "low": "BA", "high": "MA"}},
        lambda r: r["degree"] in ("BA", "MA"),
    ),
    "prefix": (
        {"prefix": {"attribute": "age", "high": 20}},
        lambda r: r["age"] is not None and r["age"] <= 20,
    ),
    "prefix of bins": ({"prefix": {"attribute": "income", "high": 20}}, lambda r: r["income"] < 20),
    "whole": ({"prefix": {"attribute": "income", "high": 50}}, lambda r: 1),
    "parity": (
        {"parity": {"age": [18, 20], "member": True, "income": {"not": [[0, 10]]}}},
        lambda r: ((r["age"] in (18, 20)) + r["member"] + (r["income"] != 5)) % 2,
    ),
    "disjunction": (
        {"disjunction": {"age": {"not": [18, None]}, "degree": "BA", "member": True}},
        lambda r: r["age"] not in (18, None) or r["degree"] == "BA" or r["member"],
    ),
    "disjunction of one": (
        {"disjunction": {"degree": ["BA", "HS"]}},
        lambda r: r["degree"] in ("BA", "HS"),
    ),
    "disjunction that holds": ({"disjunction": {"only": 5, "member": True}}, lambda r: 1),
    "not all of": (
        {"not": {"conjunction": {"age": 20, "only": 5, "member": True}}},
        lambda r: not (r["age"] == 20 and r["member"]),
    ),
    "none of": (
        {"not": {"disjunction": {"age": 20, "member": {"not": True}}}},
        lambda r: r["age"] != 20 and r["member"],
    ),
    "even": (
        {"not": {"parity": {"only": 5, "member": True, "degree": "BA"}}},
        lambda r: (1 + r["member"] + (r["degree"] == "BA")) % 2 == 0,
    ),
    "outside": (
        {"not": {"interval": {"attribute": "age", "low": 19, "high": 22}}},
        lambda r: r["age"] is None or not 19 <= r["age"] <= 22,
    ),
    "parity of one": ({"parity": {"degree": "HS"}}, lambda r: r["degree"] == "HS"),
}


def records():
    codes = DOMAIN.codes(np.arange(DOMAIN.num_cells))
    columns = [each.decode(code) for each, code in zip(DOMAIN, codes, strict=True)]
    return [dict(zip(DOMAIN.names, row, strict=True)) for row in zip(*columns, strict=True)]


RECORDS = records()


def check(query, expected: np.ndarray) -> None:
    generator = np.random.default_rng(3)
    counts = generator.integers(0, 50, DOMAIN.num_cells)
    weights = generator.dirichlet(np.ones(DOMAIN.num_cells))
    numerators = np.rint(expected * 2**VALUE_BITS).astype(np.int64)
    rounded = numerators / 2**VALUE_BITS
    assert query.values().tolist() == rounded.tolist()
    assert query.count(counts) == int(numerators @ counts)
    assert query.mean(weights) == pytest.approx(float(rounded @ weights), abs=1e-12)
    table = weights.copy()
    query.add_to(table, -2.5)
    assert table == pytest.approx(weights - 2.5 * rounded)
    stored = QUERIES.from_json(query.to_json())
    assert stored == query and hash(stored) == hash(query)


@pytest.mark.parametrize("name", WRITTEN)
def test_parsed_query_matches_its_definition(name):
    written, holds = WRITTEN[name]
    check(QUERIES.from_json(written), np.array([float(holds(each)) for each in RECORDS]))


def test_negation_is_one_minus_the_query_and_double_negation_is_the_query():
    values = np.random.default_rng(0).random(DOMAIN.num_cells)
    for query in (QUERIES.explicit(values), *(QUERIES.from_json(w) for w, _ in WRITTEN.values())):
        if query == Product(DOMAIN.shape, (), ()):
            continue
        assert negation(query).values().tolist() == (1 - query.values()).tolist()
        assert negation(negation(query)) == query
    ones = tuple(((0, size),) for size in (2, 3))
    assert negation(Parity((2, 3), (0, 1), ones)) == Product((2, 3), (), ())


def test_explicit_queries_are_rounded_to_the_grid():
    values = np.random.default_rng(0).random(DOMAIN.num_cells)
    values[:2] = 0, 1
    check(QUERIES.explicit(values), values)
    check(QUERIES.explicit(values.reshape(DOMAIN.shape)), values)
    check(QUERIES.from_json({"values": values.tolist()}), values)


def test_marginal_becomes_one_query_per_cell():
    counts = np.random.default_rng(3).integers(0, 50, DOMAIN.num_cells)
    table = counts.reshape(DOMAIN.shape).sum(axis=(0, 3, 4)).ravel()
    cells = list(QUERIES.marginal_cells(["only", "degree"]))
    assert [query.count(counts) >> VALUE_BITS for query in cells] == table.tolist()
    assert cells[1] == QUERIES.conjunction({"degree": "BA"})


def test_queries_written_differently_are_equal_if_their_values_are():
    same = [
        {"conjunction": {"age": [20, 21]}},
        {"conjunction": {"age": [[20, 21]], "only": 5}},
        {"conjunction": {"age": {"not": [18, 19, 22, 23, 24, None]}}},
        {"interval": {"attribute": "age", "low": 20, "high": 21}},
    ]
    assert len({QUERIES.from_json(each) for each in same}) == 1


def test_query_ignores_many_single_level_attributes():
    names = [dp.IntegerAttribute(f"x{i}", 0, 0) for i in range(70)]
    domain = dp.Domain(
        (*names[:35], dp.IntegerAttribute("a", 0, 2), *names[35:], dp.BooleanAttribute("b"))
    )
    query = dp.LinearQueries(domain).conjunction({"a": {"not": 1}, "b": True})
    assert query.values().tolist() == [0, 1, 0, 0, 0, 1]
    parity = dp.LinearQueries(domain).parity({"a": 1, "b": True})
    assert parity.values().tolist() == [0, 1, 1, 0, 0, 1]
