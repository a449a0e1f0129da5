"""Limits of units keep the same records, by any way through Beam; summaries are exact."""

import ast
import collections
import gc
import itertools
import pathlib
import pickle
import random
import re
from collections.abc import Iterable, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from collisions import colliding_weights, kept_by_definition
from fakes import COLLECTED, collect, pipeline
from hypothesis import given, settings, strategies as st

import beam_dp
import beam_dp as dp
import beam_dp.in_memory as release_table
from beam_dp.secret.encoding.batch import KeyBatch, KeyWords
from beam_dp.secret.encoding.units import unit_fingerprints
from beam_dp.transforms.counting import limit_contributions as limit_module
from beam_dp.transforms.counting.summarise import limited_records

Record = tuple[int, tuple[int, int]]  # unit; key and weight, or two codes


def key_batch(records: Sequence[Record]) -> KeyBatch:
    units, _ = unit_fingerprints(pa.array([unit for unit, _ in records], pa.int64()))
    keys = np.array([key for _, (key, _) in records], np.uint64)
    return KeyBatch(keys, np.array([weight for _, (_, weight) in records], np.int64), units)


def kept_of(batches: Iterable[KeyBatch]) -> collections.Counter:
    return collections.Counter(
        pair for b in batches for pair in zip(b.keys.tolist(), b.weights.tolist(), strict=True)
    )


def expected_of(records: Sequence[Record], k: int) -> collections.Counter:
    kept: collections.Counter = collections.Counter()
    for (_, words), count in kept_by_definition(records, k).items():
        kept[words] += count
    return kept


SHUFFLED = limit_module.UnitRows(KeyWords())


def partition_of(
    number: int, rows: limit_module.UnitRows = SHUFFLED
) -> limit_module.PartitionUnits:
    return limit_module.PartitionUnits(rows.words, number, rows.send)


def through_bundles(
    bundles: Sequence[Sequence[Sequence[Record]]],
    k: int,
    shuffle: random.Random,
    rows: limit_module.UnitRows = SHUFFLED,
) -> collections.Counter:
    """Bundles of batches through the two steps, their elements shuffled in between."""
    partition = partition_of(4, rows)
    shuffled: dict[int, list[bytes]] = {}
    for bundle in bundles:
        partition.start_bundle()
        sent = [element for batch in bundle for element in partition.process(key_batch(batch))]
        sent += partition.finish_bundle()
        for number, element in (each.value for each in sent):
            shuffled.setdefault(number, []).append(element)
    select = limit_module._Select(rows, k, None)
    select.start_bundle()
    kept: list[Any] = []
    for number, elements in shuffled.items():
        shuffle.shuffle(elements)
        kept += select.process((number, elements))
    return kept_of([*kept, *(each.value for each in select.finish_bundle())])


def cut(items: Sequence[Any], places: Iterable[int]) -> list[Sequence[Any]]:
    edges = [0, *sorted(min(place, len(items)) for place in places), len(items)]
    return [items[start:stop] for start, stop in itertools.pairwise(edges)]


RECORDS = st.lists(
    st.tuples(st.integers(0, 2), st.tuples(st.integers(0, 2), st.integers(1, 2))), max_size=60
)
CUTS = st.lists(st.integers(0, 60), max_size=6)


@settings(max_examples=40)
@given(
    RECORDS, CUTS, CUTS, st.integers(1, 6), st.integers(1, 12), st.randoms(use_true_random=False)
)
def test_keeps_the_same_records_in_random_splits_into_bundles(
    records, batch_cuts, bundle_cuts, k, buffered, shuffle
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limit_module, "_BUFFERED_RECORDS", buffered)
        patch.setattr(limit_module, "_BATCH_RECORDS", 5)
        expected = expected_of(records, k)
        for _ in range(2):
            bundles = cut(cut(records, batch_cuts), bundle_cuts)
            assert through_bundles(bundles, k, shuffle) == expected
            shuffle.shuffle(records)


def test_keeps_the_same_records_in_every_split_of_few_records():
    """All 203 partitions of 6 records; 3 of these are identical and 2 collide."""
    twins = [(1, record) for record in colliding_weights(1, 5, (2**32, 3))]
    records = [*twins, (1, (7, 1)), (1, (7, 1)), (1, (7, 1)), (2, (7, 1))]
    expected = expected_of(records, 2)
    shuffle = random.Random(0)
    found = 0
    for owners in itertools.product(range(6), repeat=6):
        if all(owner <= max(owners[:place], default=-1) + 1 for place, owner in enumerate(owners)):
            bundles = [
                [[record for record, owner in zip(records, owners, strict=True) if owner == bundle]]
                for bundle in range(max(owners) + 1)
            ]
            assert through_bundles(bundles, 2, shuffle) == expected
            found += 1
    assert found == 203


def test_bundle_sends_identical_records_once():
    """However many there are: a unit that has nearly all records costs no more than its cells."""
    partition = partition_of(4)
    partition.start_bundle()
    batch = key_batch([(1, (cell, 1)) for cell in range(16)] * 2**12)
    sent = [element for _ in range(8) for element in partition.process(batch)]
    sent += partition.finish_bundle()
    ((_, element),) = [each.value for each in sent]
    assert len(element) == 16 * (16 + 16 + 2) + 1  # unit, key and weight, a count below 2^16
    select = limit_module._Select(SHUFFLED, 2**19, None)
    select.start_bundle()
    (kept,) = select.process((0, [element]))
    assert kept_of([kept]) == {(cell, 1): 2**15 for cell in range(16)}


def test_rows_wait_in_the_process_of_the_local_runner_and_end_with_its_pipeline():
    local, other = beam.Pipeline("FnApiRunner"), beam.Pipeline("PrismRunner")
    assert limit_module.UnitRows.of(KeyWords(), other).name == ""
    repeated = beam.Pipeline(argv=["--runner=FnApiRunner", "--direct_runner_bundle_repeat=1"])
    assert limit_module.UnitRows.of(KeyWords(), repeated).name == ""
    rows = limit_module.UnitRows.of(KeyWords(), local)
    assert limit_module.UnitRows.of(KeyWords(), local).name == rows.name
    rng = np.random.default_rng(3)
    records = [(int(unit), (int(key), 1)) for unit, key in rng.integers(0, 50, (2000, 2))]
    bundles = cut(cut(records, [300, 700]), [1])
    sender = pickle.loads(pickle.dumps(rows))
    assert through_bundles(bundles, 3, random.Random(1), sender) == expected_of(records, 3)
    kept = limit_module._KEPT_BY_NAME[rows.name]
    assert not kept  # all rows were fetched
    columns = [np.array([5], np.uint64), np.array([1])]
    arguments = (0, np.zeros((2, 1), np.uint64), columns, np.ones(1, np.int64))
    (here,), (shuffled,) = rows.send(*arguments), SHUFFLED.send(*arguments)
    assert (len(here.value[1]), len(shuffled.value[1]), len(kept)) == (8, 33, 1)
    for received in (rows.received([here.value[1]]), rows.received([shuffled.value[1]])):
        assert [column.tolist() for column in received[1]] == [[5], [1]]
    del local, kept
    gc.collect()
    (elsewhere,) = rows.send(*arguments)
    assert elsewhere.value == shuffled.value


DOMAIN = dp.Domain((dp.IntegerAttribute("a", 0, 2), dp.IntegerAttribute("b", 0, 3)))


@pytest.mark.job
def test_pipeline_limits_costs_like_release_in_memory():
    rng = np.random.default_rng(2)
    person = np.repeat(np.arange(60), rng.integers(1, 40, 60))
    table = pd.DataFrame(
        {
            "a": rng.integers(0, 3, person.size),
            "b": rng.integers(0, 4, person.size),
            "person": person,
        }
    )
    guarantee = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "person", 30)
    plan = dp.MWEM(max_unit_cost=8.0).plan(DOMAIN, dp.marginals(DOMAIN, ways=2), guarantee, "noisy")
    with pipeline() as running:
        records = running | beam.Create([table.iloc[300:], table.iloc[:300]])
        inside, _ = limited_records(
            records, DOMAIN, guarantee, as_cells=True, unit_costs=plan.unit_costs
        )
        _ = inside | collect("kept")
    cells = np.concatenate([each.cell_index(DOMAIN) for each in COLLECTED["kept"]])
    batches = release_table.Table(table).batches(["a", "b", "person"])
    exact, _ = release_table._counted(plan, batches)
    assert np.bincount(cells, minlength=12).tolist() == exact.marginal(("a", "b")).ravel().tolist()
    by_number = np.minimum(table.groupby("person").size(), 8).sum()
    assert by_number < cells.size < len(table)


def defaults(source: str) -> list[str]:
    """The limits of costs that a function, or a class, may be called without."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.arguments):
            positional = [*node.posonlyargs, *node.args]
            pairs = [*zip(positional[::-1], node.defaults[::-1], strict=False)]
            pairs += [*zip(node.kwonlyargs, node.kw_defaults, strict=True)]  # type: ignore[list-item]
            found += [each.arg for each, default in pairs if default is not None]
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            found.append(ast.unparse(node.target))
    return [name for name in found if name in ("unit_costs", "cost_limit")]


def test_no_function_has_a_default_cost_limit():
    package = pathlib.Path(beam_dp.__file__).parent
    sources = {path.name: path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    limited = {
        name: each for name, each in sources.items() if re.search("cost_limit|unit_costs", each)
    }
    assert len(limited) > 3
    assert {name: found for name, each in limited.items() if (found := defaults(each))} == {}
    assert defaults("def f(a, cost_limit=None): ...") == ["cost_limit"]
    assert defaults("def f(*, unit_costs=None, b): ...") == ["unit_costs"]
    assert defaults("class C:\n    unit_costs: float | None = None") == ["unit_costs"]
