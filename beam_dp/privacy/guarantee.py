"""The guarantee: epsilon, delta, the relation of neighbours, and the privacy unit."""

from __future__ import annotations

import dataclasses
import enum
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

from beam_dp.checks import as_float, check_choice, checked_integer, checked_number
from beam_dp.errors import InputError, shown

RECORD = "record"

# An epsilon outside this range is a mistake: it gives no protection, or needs impossible noise.
MIN_EPSILON, MAX_EPSILON = 1e-300, 1e6
MAX_RECORDS_PER_UNIT = 2**40
# With a larger delta, a mechanism may publish a record outright with a real chance.
MAX_DELTA = 1e-5
# A smaller delta is a mistake, and 1 / delta may exceed all doubles.
MIN_DELTA = 1e-300


class Neighboring(enum.StrEnum):
    """The relation between two data sets that an observer must not be able to distinguish.

    ``ADD_OR_REMOVE_ONE``: one privacy unit is added or removed with all its records; the number of
    records is private. ``REPLACE_ONE``: the records of one unit are replaced; the number of records
    is public.
    """

    ADD_OR_REMOVE_ONE = "add_or_remove_one"
    REPLACE_ONE = "replace_one"

    @property
    def num_moved(self) -> int:
        """The number of units whose contributions change: 1, or 2 if one unit replaces another."""
        return 1 if self is Neighboring.ADD_OR_REMOVE_ONE else 2


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """A complete differential privacy guarantee, whose privacy parameters have no defaults.

    Args:
        epsilon: the privacy loss, from 1e-300 to 1e6.
        delta: 0 for pure differential privacy, else from 1e-300 to 1e-5, or to 1 with
            ``allow_large_delta``.
        neighboring: a ``Neighboring``, or its value as a string.
        privacy_unit: the column whose values are the protected units, or ``"record"``.
        max_records_per_unit: the largest number of records used per unit, from 1 to 2^40; 1 for
            ``"record"``.
        allow_large_delta: allows a delta above 1e-5, with which a mechanism might publish a record
            outright; not part of the guarantee.

    Raises:
        InputError: if a value is out of range, NaN or infinite.

    Example:
        >>> Guarantee(1.0, 1e-9, "add_or_remove_one", "person_id", 3).neighboring.value
        'add_or_remove_one'
    """

    epsilon: float
    delta: float
    neighboring: Neighboring
    privacy_unit: str
    max_records_per_unit: int
    allow_large_delta: dataclasses.InitVar[bool] = False

    if TYPE_CHECKING:  # as the dataclass generates it; the relation may also be a string

        def __init__(
            self,
            epsilon: float,
            delta: float,
            neighboring: Neighboring | Literal["add_or_remove_one", "replace_one"],
            privacy_unit: str,
            max_records_per_unit: int,
            allow_large_delta: bool = False,
        ) -> None: ...

    def __post_init__(self, allow_large_delta: bool) -> None:
        epsilon = checked_number("epsilon", self.epsilon, least=MIN_EPSILON, most=MAX_EPSILON)
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", checked_delta(self.delta))
        if self.delta > MAX_DELTA and not allow_large_delta:
            condition = f"must be at most {MAX_DELTA:g}, unless allow_large_delta is given"
            raise InputError("delta", self.delta, condition)
        check_choice("neighboring", self.neighboring, [kind.value for kind in Neighboring])
        object.__setattr__(self, "neighboring", Neighboring(self.neighboring))
        if not isinstance(self.privacy_unit, str) or not self.privacy_unit:
            raise InputError("privacy_unit", self.privacy_unit, "must be a column or 'record'")
        limit = self.max_records_per_unit
        checked_integer("max_records_per_unit", limit, 1, MAX_RECORDS_PER_UNIT)
        if self.privacy_unit == RECORD and limit != 1:
            condition = "must be 1 if the privacy unit is a record"
            raise InputError("max_records_per_unit", limit, condition)

    def with_limits(self, **limits: Any) -> Self:
        """Returns the guarantee with another epsilon, delta or number of records per unit.

        A part of a guarantee with a large delta, which its author has allowed, may have one, too.
        """
        return dataclasses.replace(self, **limits, allow_large_delta=self.delta > MAX_DELTA)

    def to_json(self) -> dict[str, Any]:
        """Returns the guarantee as JSON values."""
        return {**dataclasses.asdict(self), "neighboring": self.neighboring.value}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Returns the guarantee that ``to_json`` wrote."""
        names = [field.name for field in dataclasses.fields(cls)]
        if not isinstance(value, Mapping) or set(value) != set(names):
            raise InputError("guarantee", value, f"must have exactly the fields {names}")
        # A stored guarantee is read unchanged: its author has already allowed a large delta.
        return cls(**value, allow_large_delta=True)


def checked_delta(value: object) -> float:
    """Checks a delta, and returns it as a float."""
    delta = as_float("delta", value)
    if not (delta == 0 or MIN_DELTA <= delta < 1):
        condition = f"must be 0 (pure differential privacy), or >= {MIN_DELTA:g} and < 1"
        raise InputError("delta", delta, condition)
    return delta


LARGE_EPSILON = 10
# Last words of the names of columns that identify people or things.
_NAMES_OF_PEOPLE = frozenset(["email", "mail", "phone", "ssn", "username"])
IDS = _NAMES_OF_PEOPLE | {"id", "ids", "uid", "uuid", "guid", "identifier"}
_PERSON = re.compile(
    "citizen|client|customer|employee|member|participant|passenger|patient|person|resident"
    "|respondent|student|subject|user"
)


class PrivacyWarning(UserWarning):
    """A guarantee is valid, but may protect less than its author believes."""


def large_epsilon(epsilon: float) -> str | None:
    """Returns a warning about an epsilon above 10."""
    if epsilon <= LARGE_EPSILON:
        return None
    return (
        f"epsilon {epsilon:g} protects little: one privacy unit may change the odds of a result"
        f" e^{epsilon:g}-fold"
    )


def warn_of_epsilon(epsilon: float) -> None:
    """Warns once about an epsilon above 10."""
    if (text := large_epsilon(epsilon)) is not None:
        warnings.warn(text, PrivacyWarning, stacklevel=1)  # Python warns once per call site


def warn_of_record_unit(columns: Iterable[str]) -> None:
    """Warns once if single records are protected and a column seems to identify people."""
    for name in columns:
        if _names_people(name):
            text = (
                f"privacy_unit: 'record' protects single records, but the column {shown(name)}"
                " seems to name people; if one person may have several records, make that column"
                " the privacy unit"
            )
            warnings.warn(text, PrivacyWarning, stacklevel=1)
            return


def words_of(name: str) -> list[str]:
    """Returns the words of a column's name, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+", name)]


def _names_people(name: str) -> bool:
    """Returns whether the name of a column suggests people: person_id, patient, email."""
    words = words_of(name)
    if not words:
        return False
    is_person = len(words) == 1 and _PERSON.fullmatch(words[0].removesuffix("id"))
    is_of_person = words[-1] in IDS and any(map(_PERSON.fullmatch, words))
    return bool(is_person) or is_of_person or words[-1] in _NAMES_OF_PEOPLE
