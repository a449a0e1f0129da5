"""Arrow columns whose values are not stored in order: unions, dictionaries, runs."""

import decimal

import pyarrow as pa

from beam_dp.encoding.units import arrow_column


def dense(codes: list[int], places: list[int], *children: pa.Array) -> pa.UnionArray:
    types = pa.array(codes, pa.int8())
    return pa.UnionArray.from_dense(types, pa.array(places, pa.int32()), list(children))


UNIONS = [
    dense([0] * 6, [0, 1, 2, 3, 4, 5], pa.array([11, 12, 13, 14, 15, 16]), pa.array(["x"])),
    dense(
        [0, 0, 1, 0, 1, 1], [0, 2, 1, 3, 1, 2], pa.array([1, 0, 2, 3]), pa.array(["4", "5", "7"])
    ),
    dense([0, 0, 1, 1], [0, 1, 0, 1], pa.array(["1", "2"], pa.string_view()), pa.array([3, None])),
    pa.UnionArray.from_sparse(
        pa.array([0, 1, 1, 0], pa.int8()), [pa.array([1, 2, 3, 4]), pa.array(["5", "6", "7", "8"])]
    ),
    arrow_column([1, "2", 3.0, b"4", True, None, decimal.Decimal(5)]),
]


def in_dictionary(values: pa.Array) -> pa.DictionaryArray:
    indices = pa.array([0, 1, None, 0, len(values) - 1, 1], pa.int8())
    return pa.DictionaryArray.from_arrays(indices, values)


def in_runs(values: pa.Array) -> pa.RunEndEncodedArray:
    ends = pa.array([2 * place + 1 for place in range(len(values))], pa.int32())
    return pa.RunEndEncodedArray.from_arrays(ends, values)


_TEXTS = ["f", None, "7", "m", "a text of more than fifteen bytes", "7"]
_VALUES = [
    pa.array(_TEXTS),
    pa.array(_TEXTS, pa.large_string()),
    pa.array(_TEXTS, pa.string_view()),
    pa.array(_TEXTS).cast(pa.binary()).cast(pa.binary_view()),
    pa.array([7, None, 8, -9]),
    pa.array([7.0, None, 0.5]),
    UNIONS[2],
    pa.array([{"a": "x"}, None, {"a": "y"}], pa.struct([("a", pa.string_view())])),
    pa.array([[1], None, [2]]),
    in_dictionary(pa.array(_TEXTS, pa.string_view())),
    in_runs(pa.array(_TEXTS, pa.string_view())),
    pa.ExtensionArray.from_storage(pa.json_(), pa.array(["7", None, "8"])),
]
INDIRECT = [wrap(values) for values in _VALUES for wrap in (in_dictionary, in_runs)]
