"""The encoder of each attribute type."""

from __future__ import annotations

from beam_dp.domain.attributes import Attribute
from beam_dp.domain.dates import TimeAttribute
from beam_dp.domain.listed import BooleanAttribute, ListedAttribute
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.encoding.coded import Levels
from beam_dp.encoding.dates import TimeLevels
from beam_dp.encoding.listed import ListedLevels
from beam_dp.encoding.numbers import BooleanLevels, IntegerLevels, NumericLevels


def levels_of(attribute: Attribute) -> Levels:
    """Returns what codes the values of an attribute."""
    if isinstance(attribute, IntegerAttribute):
        ends = attribute.minimum, attribute.maximum
        return IntegerLevels(attribute, *ends, clips=attribute.clip)
    if isinstance(attribute, NumericAttribute):
        return NumericLevels(attribute)
    if isinstance(attribute, TimeAttribute):
        return TimeLevels(attribute)
    if isinstance(attribute, BooleanAttribute) and not attribute.is_listed:
        return BooleanLevels(attribute)
    if isinstance(attribute, ListedAttribute):
        return ListedLevels(attribute)
    raise TypeError(f"{type(attribute).__name__} has no encoder")
