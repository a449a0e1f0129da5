"""Examples of small functions: each line of ``examples.jsonl`` is one, in the names of a module."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import enum
import importlib
import io
import json
import math
import pathlib
import runpy
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pytest
import sqlalchemy as sa
from executed_lines import lines_below
from tiny import ADD, REPLACE, domain_of, promise, workload_of

import beam_dp
import beam_dp as dp
from beam_dp.domain import files, ordered, texts
from beam_dp.domain.texts import KeyType
from beam_dp.flags import flag
from beam_dp.hashing.keys import HashKey
from beam_dp.queries.linear import Product
from beam_dp.queries.where import read_condition
from beam_dp.secret.encoding.check import DomainCheck
from beam_dp.secret.encoding.keys import clamped_numbers, key_elements
from beam_dp.secret.encoding.open_values import GRID, OpenColumns
from beam_dp.secret.encoding.records import encode_column
from beam_dp.secret.encoding.units import arrow_column, unit_fingerprints
from beam_dp.secret.summaries.histogram import MarginalsAccumulator
from beam_dp.secret.summaries.sparse_counts import counted_values


def digits(numbers: Iterable[float], number: int = 5) -> list[float]:
    """Numbers rounded to some decimal digits, as the literature prints them."""
    return [float(f"{each:.{number}g}") for each in numbers]


def selected(domain: dp.Domain, text: str) -> dict[str, list[int]]:
    """The codes that a condition selects, of the attributes that it names."""
    found = read_condition(domain, text).items()
    return {domain.names[axis]: np.flatnonzero(mask).tolist() for axis, mask in found}


def alike(read: Callable[[pa.Array], Any], values: list[Any]) -> list[Any]:
    """What is read of each value: alone, next to a null, among all others, in any storage."""
    found = [read(arrow_column([value])).tolist()[0] for value in values]
    assert read(arrow_column(values)).tolist() == found
    for value, each in zip(values, found, strict=True):
        assert read(arrow_column([value, None, value])).tolist()[::2] == [each, each]
    texts = {value: each for value, each in zip(values, found, strict=True) if type(value) is str}
    column = pa.array(list(texts), pa.string())
    kinds = (pa.string(), pa.large_string(), pa.string_view(), pa.binary())
    for stored in (column.dictionary_encode(), *map(column.cast, kinds)):
        assert read(stored).tolist() == list(texts.values())
    return found


def codes(kind: str, **fields: Any) -> Callable[[pa.Array], Any]:
    entry = {"name": "a", "type": kind, **fields}
    (attribute,) = files.domain_from_json({"attributes": [entry]}).attributes
    return lambda column: encode_column(attribute, column)


def said_of(attribute: Any, values: list[Any]) -> Any:
    """What ``check-domain`` says of a column."""
    check = DomainCheck(dp.Domain((attribute,)))
    check.add(pa.record_batch([pa.array(values)], [attribute.name]))
    return check.columns[0]


def quoting(line: str) -> Exception:
    """What an engine says of a worker's error."""
    return RuntimeError(
        "Pipeline p failed in state FAILED: java.lang.RuntimeException: Error received from SDK"
        " harness for instruction 11: Traceback (most recent call last):\n"
        f'  File "bundle_processor.py", line 1, in process\n    rows = read(alice)\n{line}\n\n'
        "\tat org.apache.beam.runners.fnexecution (record 7 of alice)"
    )


def raised_in(place: str) -> Exception:
    """An error that the code of a library raises."""
    with pytest.raises(ValueError, match="tell-tale") as caught:
        exec(compile("raise ValueError('tell-tale')", f"/lib/{place}", "exec"))
    return caught.value


KEY = HashKey(4, np.arange(10, dtype=np.uint64), bytes(16))


def keyed(key_type: KeyType) -> Callable[[pa.Array], Any]:
    def read(column: pa.Array) -> Any:
        elements, valid = key_elements(column, key_type, KEY)
        return np.where(valid, elements, None)

    return read


def clamped(largest: int) -> Callable[[pa.Array], Any]:
    def read(column: pa.Array) -> Any:
        numbers, valid = clamped_numbers(column, largest)
        return np.where(valid, numbers, None)

    return read


def unit(column: pa.Array) -> Any:
    (high, low), valid = unit_fingerprints(column)
    pairs = [(one << 64) | other for one, other in zip(high.tolist(), low.tolist(), strict=True)]
    return np.where(valid, np.array(pairs, object), None)


def units(values: list[Any] | pa.Array, kind: pa.DataType | None = None) -> list[Any]:
    """The unit of each value, of any objects or of one type of Arrow."""
    if kind is not None:
        values = pa.array(values, kind)
    return unit(values if isinstance(values, pa.Array) else arrow_column(values)).tolist()


def counted_texts(attribute: dp.CategoricalAttribute, values: Any) -> dict[str, float]:
    """The weights of the texts of an open column, each of which is a record's."""
    columns = OpenColumns(None, (attribute,), ())
    batch = pa.record_batch([pa.array(values)], [attribute.name])
    texts, sums = counted_values(columns, promise(ADD), [batch]).texts[attribute.name]
    pairs = zip(texts.to_pylist(), sums.tolist(), strict=True)
    return {text.decode(): total / GRID for text, total in pairs}


def counted_leaves(attribute: dp.NumericAttribute, values: list[Any]) -> list[float]:
    columns = OpenColumns(None, (), (attribute,))
    batch = pa.record_batch([pa.array(values)], [attribute.name])
    counts = counted_values(columns, promise(ADD), [batch]).leaves[attribute.name]
    return (counts / GRID).tolist()


def counted_and_sent(domain: dp.Domain, tables: Any) -> tuple[bool, int, bool]:
    """Whether cells are counted, how many cells are sent, and whether not many more are counted."""
    accumulator = MarginalsAccumulator(domain, tables)
    num_counted = sum(counts.num_cells for counts in accumulator.create()[0])
    is_bounded = num_counted <= max(3 * 2**24, accumulator.num_cells)
    return accumulator.as_cells, accumulator.num_cells, is_bounded


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
LINES = (pathlib.Path(__file__).parent / "examples.jsonl").read_text("utf-8").splitlines()
GIVEN = {
    "dp": dp,
    "io": io,
    "math": math,
    "np": np,
    "pa": pa,
    "sa": sa,
    "FILE": __file__,
    "Flag": flag.Flag,
    "ADD": ADD,
    "REPLACE": REPLACE,
    "digits": digits,
    "promise": promise,
    "domain_of": domain_of,
    "workload_of": workload_of,
    "selected": selected,
    "alike": alike,
    "arrow_column": arrow_column,
    "clamped": clamped,
    "codes": codes,
    "counted_and_sent": counted_and_sent,
    "counted_leaves": counted_leaves,
    "counted_texts": counted_texts,
    "enum": enum,
    "pandas": pandas,
    "keyed": keyed,
    "said_of": said_of,
    "quoting": quoting,
    "raised_in": raised_in,
    "files": files,
    "unit": unit,
    "units": units,
    "uuid": uuid,
    "ENDLESS": ENDLESS,
    "KEY": KEY,
    "D": decimal.Decimal,
    "datetime": datetime,
    "WHOLE": dp.Domain((dp.NumericAttribute("age", (18, 20, 21, 25), whole=True),)),
    "LEVELS": dp.Domain(
        (
            dp.IntegerAttribute("hours", -2, 3, nullable=True),
            dp.NumericAttribute("age", (0, 20, 40.5, 100)),
            dp.CategoricalAttribute("sex", ("F", "M"), other=True),
            dp.BooleanAttribute("in/out of bed", nullable=True),
            dp.DateAttribute("day", ("2020-01-01", "2020-02-01", "2020-03-01")),
        )
    ),
    "TICKETS": dp.Domain(
        (dp.IntegerAttribute("class", 1, 3), dp.CategoricalAttribute("from", ("class", "a")))
    ),
    "LinearQueries": dp.LinearQueries,
    "URL": "postgresql://bob:a@localhost/db?password=b&port=1",
    "LARGE": "epsilon 20 protects little: one privacy unit may change the odds of a result"
    " e^20-fold",
    "OPEN_ATTRIBUTE": {"name": "age", "min": files.to_fill_in("the least")},
    "EDGES_FROM": {"ledger_release": "visits/3", "draw_id": "0f" * 16},
    "FRAME": pandas.DataFrame({"age": [3], "child": [True]}),
    "SCHEMA": pa.schema([pa.field("age", pa.int8(), nullable=False)]),
    "PROMISE": dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1),
    "MISSING": ModuleNotFoundError("a message", name="boto3"),
    "AGES": ordered.IntegerAttribute("age", 17, 90),
    "DOMAIN": files.read_domain('{"age": 4, "sex": 2}'),
    "BOTH": Product((2, 2), (0, 1), (((1, 2),), ((1, 2),))),
    "DISCRETE": {"age": {"type": "discrete", "domain": 85}},
    "ADDED": dp.Neighboring.ADD_OR_REMOVE_ONE,
    "REPLACED": dp.Neighboring.REPLACE_ONE,
    "SHARES": dp.NumericAttribute("share", (0, 0.5, 10)),
    "FOUR_KINDS": files.read_domain(
        {
            "attributes": [
                {"name": "degree", "type": "categorical", "values": ["BA", "MA", 7], "other": True}
                | {"nullable": True},
                {"name": "hours", "type": "integer", "min": -3, "max": 3, "other": True},
                {"name": "age", "type": "numeric", "edges": [17, 25, 35], "nullable": True},
                {"name": "member", "type": "boolean", "nullable": True},
            ]
        }
    ),
    "QUERY_KEY_TYPES": texts.KEY_TYPES,
    "ODD_NAMES": ["age", "class", "in/out", "2nd", "in_out"],
}


def test_functions_return_what_the_examples_say():
    for line in LINES:
        example = json.loads(line)
        names = {**vars(importlib.import_module(example["module"])), **GIVEN}
        assert eval(example["call"], names) == eval(example["returns"], names), line


def test_every_public_name_exists():
    assert [name for name in beam_dp.__all__ if not hasattr(beam_dp, name)] == []


EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"


@pytest.fixture(scope="module")
def story_class() -> Any:
    return runpy.run_path(str(EXAMPLES / "story.py"))["Story"]


def test_example_visits_are_reproducible_and_in_their_domain():
    made = runpy.run_path(str(EXAMPLES / "visits.py"))
    table = made["visits"]()
    assert table.equals(made["visits"]())
    visits_of_a_person = table.group_by("person_id").aggregate([([], "count_all")])
    assert max(visits_of_a_person["count_all"].to_pylist()) == made["MAX_VISITS"]
    domain = dp.parse_domain(made["DOMAIN"])
    # So large an epsilon that no noise hides a record that was left out.
    guarantee = dp.Guarantee(1e4, 1e-9, "add_or_remove_one", "person_id", made["MAX_VISITS"])
    release = dp.release(table, domain, dp.marginals(domain, ways=1), guarantee)
    assert release.num_records == table.num_rows


def test_example_prints_the_commands_it_runs(story_class, tmp_path, capsys):
    def ask(number: int) -> int:
        """Is not shown."""
        if number:
            number += 1
        return number

    story = story_class(tmp_path / "told")
    assert story.python(ask, 2) == 3
    assert capsys.readouterr().out == "\n>>> if number:\n...     number += 1\n"
    assert story.run("beam-dp descrbe x", code=2).startswith("error: ")
    assert capsys.readouterr().out.startswith("\n$ beam-dp descrbe x\n    error: ")


def test_example_stops_after_an_unexpected_exit_code(story_class, tmp_path):
    with pytest.raises(SystemExit, match="exit code 2; 0 was expected"):
        story_class(tmp_path / "told").run("beam-dp descrbe x")


def test_example_starts_in_an_empty_folder(story_class, tmp_path):
    (tmp_path / "mine").write_text("kept")
    story_class(tmp_path / "told").folder.joinpath("old").write_text("")
    assert list(story_class(tmp_path / "told").folder.iterdir()) == []
    assert (tmp_path / "mine").exists()


def loop(times: int) -> int:
    return sum(number for number in range(times))


def test_line_limit_accepts_fewer_lines_and_stops_a_long_loop():
    with lines_below(100):
        assert loop(10) == 45
    with pytest.raises(AssertionError, match="1,000 lines of Python or more"), lines_below(1000):
        loop(10**12)


def test_line_limit_fails_even_if_the_block_swallows_the_error():
    with pytest.raises(AssertionError), lines_below(1000), contextlib.suppress(AssertionError):
        loop(10**12)


class Own:
    """A third-party mechanism, which need not inherit from our class."""

    name, answers_linear_queries = "own", False
    plan, release = dp.MWEM().plan, dp.MWEM().release


def test_mechanism_of_another_package_is_accepted():
    domain = dp.parse_domain('{"age": 85}')
    guarantee = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
    dp.ReleaseSyntheticDatabase(domain, dp.marginals(domain, ways=1), guarantee, mechanism=Own())
