"""Sparse queries answered through Beam: near the truth, one draw, bad ones refused one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apache_beam as beam
import fakes
import fastavro
import numpy as np
import pyarrow as pa
import pytest
from jobs import write_table

from beam_dp.errors import InputError
from beam_dp.hashing.keys import HashKey
from beam_dp.mechanisms.online.sparse_mw import plan_sparse_mw
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.row_families import RowConjunctions, conjunction_of_text
from beam_dp.queries.sparse_reader import SparseQueries
from beam_dp.transforms import AnswerSparseQueries, KeyColumns
from pipelines.answer_queries import main


@pytest.fixture(autouse=True)
def seeded(monkeypatch) -> None:
    fakes.seed_noise(monkeypatch)


KEYS = [f"{i % 20}@example.org" for i in range(4000)]  # 200 records of each
RECORDS = [{"email": key, "person": i // 2} for i, key in enumerate(KEYS)]
LINES = [
    '{"id": "first", "sparse": {"3@example.org": 1, "4@example.org": 0.5}}',
    '{"sparse": {"3@example.org": 2}}',
    '{"sparse": {"a": 1, "b": 1, "c": 1, "d": 1}}',
    '{"sparse": [[5, 1]]}',
    '{"sparse": {"nobody": 1}}',
]


def plan(unit: str = "record", k: int = 1) -> Any:
    promise = Guarantee(1000.0, 1e-9, "add_or_remove_one", unit, k)
    return plan_sparse_mw(promise, "noisy", max_sparsity=3, num_questions=5, max_updates=5)


def answering(lines: list[Any], made: Any, records: list[dict[str, Any]] = RECORDS) -> Any:
    def branch(p: Any) -> Any:
        data = p | "Records" >> beam.Create(records)
        asked = p | "Lines" >> beam.Create([lines])
        return asked | AnswerSparseQueries(made, KeyColumns("email"), data)

    return branch


@pytest.mark.job
def test_answers_queries_accurately_and_reports_invalid_queries():
    found = fakes.outputs(
        {
            "queries": answering(LINES, plan()),
            "of units": answering([LINES[0]], plan("person", 1)),
            "no queries": answering([], plan(), []),
            "no records": answering([LINES[0]], plan(), []),
        }
    )
    rows = {name: batches[0].answers for name, batches in found.items()}
    each = rows["queries"]
    assert [row["error"] is None for row in each] == [True, False, False, False, True]
    assert each[0]["id"] == "first"
    assert each[0]["value"] == pytest.approx(300, abs=each[0]["bound"])
    assert each[4]["value"] == pytest.approx(0, abs=each[4]["bound"])
    assert "3" in each[2]["error"] and "must be text" in each[3]["error"]
    # Of each person one of two records, with neighbouring keys, is kept.
    (row,) = rows["of units"]
    assert row["bound"] < 40 and row["value"] == pytest.approx(150, abs=80)
    assert rows["no queries"] == []
    (row,) = rows["no records"]
    assert row["value"] == pytest.approx(0, abs=row["bound"])


def test_elements_of_one_query_never_share_a_fingerprint(monkeypatch):
    reader = SparseQueries("text", 3, HashKey.draw(1))
    asked = {"sparse": {"a": 1, "b": 1}}
    assert reader.from_json(asked).sparsity == 2
    same = lambda elements, key: np.zeros(len(elements), np.uint64)  # noqa: E731
    monkeypatch.setattr("beam_dp.queries.sparse_reader.universe_elements", same)
    with pytest.raises(InputError, match="must not share a fingerprint"):
        reader.from_json(asked)


def flags(folder: Path, **overrides: str | None) -> list[str]:
    (folder / "queries.jsonl").write_text("\n".join(LINES), encoding="utf-8")
    values: dict[str, str | None] = {
        "input": write_table(folder, pa.table({"email": KEYS})),
        "queries": str(folder / "queries.jsonl"),
        "mechanism": "sparse_mw",
        "key": "email",
        "max_sparsity": "3",
        "epsilon": "1000",
        "delta": "1e-9",
        "neighboring": "add_or_remove_one",
        "privacy_unit": "record",
        "num_records": "noisy",
        "output": str(folder / "out"),
    }
    return [
        f"--{name}={value}" for name, value in {**values, **overrides}.items() if value is not None
    ]


@pytest.mark.job
def test_program_answers_all_conjunctions_over_rows(tmp_path):
    rows = ["1111"] * 3000 + ["1101"] * 2000 + ["0000"] * 9
    argv = flags(tmp_path, queries="row_conjunctions:4,3", max_sparsity=None)
    write_table(tmp_path, pa.table({"email": rows}))
    assert main(argv) == 0
    (path,) = (tmp_path / "out").glob("answers-*.avro")
    with path.open("rb") as file:
        found: list[Any] = list(fastavro.reader(file))
    family = RowConjunctions(4, 3)
    assert [json.loads(row["query"]) for row in found] == family.to_json()
    for row, text in zip(found, family, strict=True):
        exact = sum(map(rows.count, conjunction_of_text(text).elements))
        assert abs(row["value"] - exact) <= row["bound"] < len(rows) / 2
    plan_on_card = json.loads((tmp_path / "out" / "card.json").read_text())["plan"]
    assert (plan_on_card["max_sparsity"], plan_on_card["num_questions"]) == (2, 32)
