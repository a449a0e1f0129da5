"""Released records as Arrow columns, in the types of the users' own values."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.attributes import OTHER_LABEL, Attribute, Value
from beam_dp.domain.ordered import BinnedAttribute, IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.installed import check_arrow

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_table(
    domain: Domain, codes: Sequence[NDArray[Any]], bin_values: Mapping[str, NDArray[Any]]
) -> pa.Table:
    """Returns records as a table of ``arrow_schema``; ``bin_values`` were drawn within bins."""
    check_arrow()
    import pyarrow as pa

    columns = [
        arrow_column(attribute, column, bin_values.get(attribute.name))
        for attribute, column in zip(domain, codes, strict=True)
    ]
    return pa.table(columns, schema=arrow_schema(domain))


def arrow_schema(domain: Domain) -> pa.Schema:
    """Returns the schema of released records, with one column per attribute."""
    import pyarrow as pa

    return pa.schema([(attribute.name, arrow_type(attribute)) for attribute in domain])


def arrow_type(attribute: Attribute) -> pa.DataType:
    """Returns the type of a column; string if values have several types or may be "other"."""
    import pyarrow as pa

    return {
        "date": pa.date32(),
        "timestamp-micros": pa.timestamp("us", "UTC"),
        "local-timestamp-micros": pa.timestamp("us"),
        "boolean": pa.bool_(),
        "long": pa.int64(),
        "double": pa.float64(),
        "string": pa.string(),
    }[_type_name(attribute)]


def _type_name(attribute: Attribute) -> str:
    """Returns the Avro name of a column's type."""
    written = attribute.avro_type()
    members = [
        each for each in (written if isinstance(written, list) else [written]) if each != "null"
    ]
    if len(members) > 1:
        return "string"
    kind = members[0] if isinstance(members[0], dict) else {"type": members[0]}
    return str(kind.get("logicalType") or kind["type"])


def column_values(attribute: Attribute, codes: Sequence[int]) -> list[Value]:
    """Returns the values for codes of an attribute without bins; does not need pyarrow."""
    is_text = _type_name(attribute) == "string"
    return [_plain(value, is_text) for value in attribute.decode(codes)]


def value_columns(
    domain: Domain, codes: Sequence[NDArray[Any]], bin_values: Mapping[str, NDArray[Any]]
) -> dict[str, list[Value]]:
    """Returns records as lists of values by name; ``bin_values`` were drawn within bins."""
    columns = {}
    for attribute, column in zip(domain, codes, strict=True):
        values = attribute.decode(column)
        if isinstance(attribute, BinnedAttribute) and attribute.name in bin_values:
            numbers = bin_values[attribute.name].tolist()
            for place in np.flatnonzero(column < attribute.num_levels).tolist():
                values[place] = attribute.released(numbers[place])
        columns[attribute.name] = values
    return columns


def arrow_column(
    attribute: Attribute, codes: NDArray[Any], numbers: NDArray[Any] | None
) -> pa.Array:
    """Returns the values for codes, shape (n,); for bins, the drawn ``numbers`` if given."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = arrow_type(attribute)
    if numbers is None and not isinstance(attribute, IntegerAttribute):
        levels = column_values(attribute, range(attribute.size))
        return pa.array(levels, kind).take(pa.array(codes))
    if numbers is None:
        # A range of integers may be too long to list.
        assert isinstance(attribute, IntegerAttribute)
        numbers = codes.astype(np.int64) + attribute.minimum
    special = pa.array(codes >= attribute.num_levels)
    if pa.types.is_string(kind):
        released = attribute.released if isinstance(attribute, BinnedAttribute) else int
        values = pa.array([_plain(released(each), is_text=True) for each in numbers.tolist()], kind)
    elif pa.types.is_date(kind):
        values = pa.array(numbers.astype(np.int32)).cast(kind)
    else:
        values = pa.array(numbers).cast(kind)
    others = pa.nulls(len(codes), kind)
    if attribute.other:
        is_other = pa.array(codes == attribute.other_code)
        others = pc.if_else(is_other, pa.scalar(OTHER_LABEL, kind), others)
    return pc.if_else(special, others, values)


def _plain(value: Value, is_text: bool) -> Value:
    """Returns a value in the type of its column; in a column of strings, as a string."""
    if value is None or isinstance(value, str) or not is_text:
        return value
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime.date) else repr(value)
