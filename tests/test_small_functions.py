"""Examples of small functions: each line of ``examples.jsonl`` is one, in the names of a module."""

from __future__ import annotations

import importlib
import io
import json
import math
import pathlib

import numpy as np
import pandas
import pyarrow as pa
import pytest
import sqlalchemy as sa

from beam_dp.domain import files, ordered
from beam_dp.flags import flag
from beam_dp.models.potentials import marginal_weights
from beam_dp.models.weights import DenseWeights, SparseWeights
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.linear import Product
from beam_dp.queries.reader import LinearQueries
from beam_dp.queries.sparse import SparseQuery

LINES = (pathlib.Path(__file__).parent / "examples.jsonl").read_text("utf-8").splitlines()
GIVEN = {
    "io": io,
    "math": math,
    "np": np,
    "pa": pa,
    "sa": sa,
    "FILE": __file__,
    "Flag": flag.Flag,
    "LinearQueries": LinearQueries,
    "URL": "postgresql://bob:a@localhost/db?password=b&port=1",
    "LARGE": "epsilon 20 protects little: one privacy unit may change the odds of a result"
    " e^20-fold",
    "OPEN_ATTRIBUTE": {"name": "age", "min": files.to_fill_in("the least")},
    "EDGES_FROM": {"ledger_release": "visits/3", "draw_id": "0f" * 16},
    "FRAME": pandas.DataFrame({"age": [3], "child": [True]}),
    "SCHEMA": pa.schema([pa.field("age", pa.int8(), nullable=False)]),
    "PROMISE": Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1),
    "MISSING": ModuleNotFoundError("a message", name="boto3"),
    "AGES": ordered.IntegerAttribute("age", 17, 90),
    "DOMAIN": files.read_domain('{"age": 4, "sex": 2}'),
    "BOTH": Product((2, 2), (0, 1), (((1, 2),), ((1, 2),))),
    "DISCRETE": {"age": {"type": "discrete", "domain": 85}},
    "ODD_NAMES": ["age", "class", "in/out", "2nd", "in_out"],
}


def test_functions_return_what_the_examples_say():
    for line in LINES:
        example = json.loads(line)
        names = {**vars(importlib.import_module(example["module"])), **GIVEN}
        assert eval(example["call"], names) == eval(example["returns"], names), line


def test_marginals_follow_from_potentials():
    potentials = [((0,), np.log([1.0, 3.0]))]
    first, both = marginal_weights((2, 2), potentials, [(0,), (0, 1)])
    np.testing.assert_allclose(first, [0.25, 0.75])
    np.testing.assert_allclose(both, [[0.125, 0.125], [0.375, 0.375]])


def test_an_update_lowers_the_weights_that_a_query_covers():
    dense, sparse = DenseWeights(np.zeros(4)), SparseWeights(4)
    dense.update(Product((4,), (0,), (((0, 2),),)), -0.25)
    query = SparseQuery({"a": 1, "b": 1})
    sparse.update(query, -0.25)
    np.testing.assert_allclose(dense.weights, [0.218912, 0.218912, 0.281088, 0.281088], atol=1e-6)
    np.testing.assert_allclose(sparse.mean(query), 0.437823, atol=1e-6)
    np.testing.assert_allclose(sparse.common_weight, 0.281088, atol=1e-6)


def test_flags_that_belong_together_are_refused_alone():
    given, together = {"bins": "9"}, ("edges_from", "bins")
    with pytest.raises(flag.FlagError, match=r"^--edges_from is required with --bins$"):
        flag.check_together(given, together, ("bins", "edges_from"))
