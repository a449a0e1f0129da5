"""The universe of records: attributes, their values, and how cells are numbered."""

from beam_dp.domain.attributes import (
    MAX_INDEXED_CELLS,
    NULL_LABEL,
    OTHER_LABEL,
    Attribute,
    Value,
    nearest_known,
)
from beam_dp.domain.dates import DateAttribute, DatetimeAttribute
from beam_dp.domain.impossible import Impossible
from beam_dp.domain.listed import BooleanAttribute, CategoricalAttribute
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute, OrderedAttribute
from beam_dp.domain.universe import Domain

__all__ = [
    "MAX_INDEXED_CELLS",
    "NULL_LABEL",
    "OTHER_LABEL",
    "Attribute",
    "BooleanAttribute",
    "CategoricalAttribute",
    "DateAttribute",
    "DatetimeAttribute",
    "Domain",
    "Impossible",
    "IntegerAttribute",
    "NumericAttribute",
    "OrderedAttribute",
    "Value",
    "nearest_known",
]
