"""A pandas frame is as many records as it has rows, read as single ones are, and never dropped."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pandas as pd
import pytest
from fakes import COLLECTED, collect, pipeline

from beam_dp.domain.listed import BooleanAttribute, CategoricalAttribute
from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.encoding.units import arrow_column, unit_fingerprints
from beam_dp.transforms import EncodeRecords

DOMAIN = Domain(
    (
        IntegerAttribute("age", 0, 9, nullable=True),
        CategoricalAttribute("sex", ("f", "m"), nullable=True),
        BooleanAttribute("smokes", nullable=True),
    )
)
DICTS: list[dict[str, Any]] = [
    {
        "age": (i % 9, None)[i % 7 == 3],
        "sex": ("f", "m", None)[i % 3],
        "smokes": (True, False, None)[i // 3 % 3],
        "who": i // 2,
    }
    for i in range(40)
]
Encoded = list[tuple[int, ...]]


def encoded(elements: Sequence[Any], unit: str = "who") -> Encoded:
    """The codes and the unit of each record, in any order."""
    with pipeline() as p:
        # As of a function that declares nothing.
        records = p | beam.Impulse() | beam.FlatMap(lambda _: elements).with_output_types(Any)
        _ = records | EncodeRecords(DOMAIN, unit, as_cells=False) | collect("encoded")
    found = []
    for batch in COLLECTED["encoded"]:
        columns = [*batch.codes, *batch.units]
        found += list(zip(*(column.tolist() for column in columns), strict=True))
    return sorted(found)


FRAME = pd.DataFrame(DICTS)
OBJECTS = pd.DataFrame(DICTS, dtype=object)
FRAMES = {
    "as pandas infers it": FRAME,  # ages are floats, of which some are NaN
    "objects": OBJECTS,
    "objects, pandas' own null": OBJECTS.where(OBJECTS.notna(), pd.NA),
    "nullable types": FRAME.convert_dtypes(),
    "arrow types": FRAME.convert_dtypes(dtype_backend="pyarrow"),
    "categories": FRAME.astype({"sex": "category", "age": "category"}),
    "narrow": FRAME.astype({"age": np.float32, "who": np.int8}),
    "sparse": FRAME.astype({"age": pd.SparseDtype(float)}),
    "more columns": FRAME.assign(other=[{1}] * len(FRAME)),
    "a named index": FRAME.set_index("who"),
    "several named indexes": FRAME.set_index(["sex", "who"]),
    "any index": FRAME.sample(frac=1, random_state=1),
}


@pytest.mark.mostly_slow(one_in=2, start=1)
@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_is_read_as_its_rows_are(kind: str) -> None:
    expected = encoded(DICTS)
    assert len(expected) == len(DICTS)
    assert encoded([FRAMES[kind]]) == expected


def test_frames_and_single_records_go_together() -> None:
    assert encoded([FRAME[:7], *DICTS[7:20], OBJECTS[20:], FRAME[:0]]) == encoded(DICTS)


def test_a_frame_of_a_declared_type_is_accepted() -> None:
    with pipeline() as p:
        _ = p | beam.Create([FRAME]) | EncodeRecords(DOMAIN, "who", as_cells=True) | collect("a")
    assert sum(len(batch.cells) for batch in COLLECTED["a"]) == len(FRAME)


def test_values_of_mixed_types_are_read_one_by_one() -> None:
    """What a value is read as does not depend on the others of its column."""
    values = [1, "1", 1.0, True, b"m", datetime.date(2024, 1, 1), "007", 2**70, None]
    frame = pd.DataFrame({"who": pd.Series(values, dtype=object), "sex": "m"})
    fingerprints, valid = unit_fingerprints(arrow_column(values))
    assert [record[3:] for record in encoded([frame])] == sorted(
        map(tuple, fingerprints[:, valid].T.tolist())
    )


def test_of_columns_of_one_name_the_first_counts_and_one_that_lacks_is_null() -> None:
    twice = pd.DataFrame([["m", "f", 1], ["f", "m", 2]], columns=["sex", "sex", "who"])
    single = [{"sex": "m", "who": 1}, {"sex": "f", "who": 2}]
    assert encoded([twice]) == encoded(single)
    assert encoded([twice.drop(columns="who")]) == []


class Unwilling(pd.DataFrame):
    """A class of the user's own that fails."""

    @property
    def iloc(self) -> Any:
        raise RuntimeError("of 40 records")


def test_reads_a_frame_of_a_class_that_fails_as_pandas_reads_it() -> None:
    assert encoded([Unwilling(DICTS)]) == encoded(DICTS)


@pytest.mark.parametrize("column", ["age", "sex", "smokes", "who"])
def test_a_value_that_cannot_be_compared_costs_its_own_record_alone(column: str) -> None:
    frame = OBJECTS.copy()
    frame.at[7, column] = decimal.Decimal("sNaN")
    others = encoded([*DICTS[:7], *DICTS[8:]])
    found = encoded([frame])
    assert [each for each in found if each in others] == others
    assert len(found) <= len(DICTS)


def test_ignores_labels_of_columns_that_cannot_be_compared() -> None:
    labelled = FRAME.set_axis([*FRAME.columns[:-1], pd.NA], axis=1)
    labelled.insert(0, "who", FRAME["who"].to_numpy())
    assert encoded([labelled]) == encoded(DICTS)
