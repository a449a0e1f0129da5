"""Warnings about promises that protect less than they seem to, from public parameters alone."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable

from beam_dp.errors import shown

LARGE_EPSILON = 10
# The last word of the name of a column that tells people or things apart.
_NAMES_OF_PEOPLE = frozenset(["email", "mail", "phone", "ssn", "username"])
IDS = _NAMES_OF_PEOPLE | {"id", "ids", "uid", "uuid", "guid", "identifier"}
_PERSON = re.compile(
    "citizen|client|customer|employee|member|participant|passenger|patient|person|resident"
    "|respondent|student|subject|user"
)


class PrivacyWarning(UserWarning):
    """A promise that is kept, and may protect less than its author believes."""


def large_epsilon(epsilon: float) -> str | None:
    """Returns a warning about an epsilon above 10.

    Example:
        >>> large_epsilon(20)
        'epsilon 20 protects little: one privacy unit may change the odds of a result e^20-fold'
        >>> large_epsilon(10) is None
        True
    """
    if epsilon <= LARGE_EPSILON:
        return None
    return (
        f"epsilon {epsilon:g} protects little: one privacy unit may change the odds of a result"
        f" e^{epsilon:g}-fold"
    )


def warn_of_epsilon(epsilon: float) -> None:
    """Warns once about an epsilon above 10."""
    if (text := large_epsilon(epsilon)) is not None:
        warnings.warn(text, PrivacyWarning, stacklevel=1)  # one place, so that it is shown once


def warn_of_record_unit(columns: Iterable[str]) -> None:
    """Warns once where single records are protected and a column seems to name people.

    Args:
        columns: names of those that are not released.
    """
    for name in columns:
        if _names_people(name):
            text = (
                f"privacy_unit: 'record' protects single records, but the column {shown(name)}"
                " seems to name people; if one of them may have several records, make it the"
                " privacy unit"
            )
            warnings.warn(text, PrivacyWarning, stacklevel=1)
            return


def words_of(name: str) -> list[str]:
    """Returns the words of a column's name, in small letters.

    Example:
        >>> words_of("PassengerId"), words_of("home_phone2")
        (['passenger', 'id'], ['home', 'phone', '2'])
    """
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+", name)]


def _names_people(name: str) -> bool:
    """Returns whether a column is called as one that names people is: person_id, patient, email."""
    words = words_of(name)
    if not words:
        return False
    is_person = len(words) == 1 and _PERSON.fullmatch(words[0].removesuffix("id"))
    is_of_person = words[-1] in IDS and any(map(_PERSON.fullmatch, words))
    return bool(is_person) or is_of_person or words[-1] in _NAMES_OF_PEOPLE
