"""The universe of records: attributes, their values, and how cells are numbered."""

from beam_dp.domain.attributes import (
    MAX_INDEXED_CELLS as MAX_INDEXED_CELLS,
    NULL_LABEL as NULL_LABEL,
    OTHER_LABEL as OTHER_LABEL,
    Attribute as Attribute,
    Value as Value,
    nearest_known as nearest_known,
)
from beam_dp.domain.dates import (
    DateAttribute as DateAttribute,
    DatetimeAttribute as DatetimeAttribute,
)
from beam_dp.domain.impossible import Impossible as Impossible
from beam_dp.domain.listed import (
    BooleanAttribute as BooleanAttribute,
    CategoricalAttribute as CategoricalAttribute,
)
from beam_dp.domain.ordered import (
    IntegerAttribute as IntegerAttribute,
    NumericAttribute as NumericAttribute,
    OrderedAttribute as OrderedAttribute,
)
from beam_dp.domain.universe import Domain as Domain
