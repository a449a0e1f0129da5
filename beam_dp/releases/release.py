"""The base class of all releases, their common fields, and the JSON values that they hold."""

from __future__ import annotations

import functools
import importlib.metadata
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee

_LIBRARIES = ("beam_dp", "numpy", "scipy", "opendp")


class AnyRelease(Protocol):
    """A release of any kind, or the directory of many windows: public values."""

    KIND: ClassVar[str]  # a name in the table of kinds
    ID_OF: ClassVar[str]  # what ``id`` names: a draw of noise, or a horizon

    @property
    def id(self) -> str:
        """32 hexadecimal digits."""

    @property
    def guarantee(self) -> Guarantee:
        """The promise to the people in the data."""

    @property
    def mechanism(self) -> str:
        """The name of the mechanism that made it."""

    @property
    def card(self) -> Mapping[str, Any]:
        """The content of its card, as JSON values, except the head and the list of files."""

    @property
    def plan(self) -> Mapping[str, Any]:
        """The public parameters of the plan that it was made by, as JSON values."""

    @property
    def noise(self) -> Sequence[Mapping[str, Any]]:
        """The noise of each measurement: what was measured, the distribution and its scale."""

    @property
    def records_domain(self) -> Domain | None:
        """The domain of the records, if their owner can compare them with the answers."""


if TYPE_CHECKING:
    _Base = AnyRelease
else:
    _Base = object  # what are properties of ``AnyRelease`` are fields of some kinds


@dataclass(frozen=True, eq=False, kw_only=True)
class Release(_Base):
    """A release of any kind: public, so it may be copied and queried at no further cost.

    Each kind has the fields of ``AnyRelease``, and overrides the methods below where it knows more.
    ``kinds`` reads and writes it.

    Args:
        draw_id: names one draw of noise; 32 hexadecimal digits.
        guarantee: the promise to the people in the data.

    Attributes:
        read_from: the JSON values of the card that it was read from; None if it was made here.
    """

    KIND: ClassVar[str]
    ID_OF: ClassVar[str] = "draw"

    draw_id: str
    guarantee: Guarantee
    read_from: Mapping[str, Any] | None = field(default=None, init=False, repr=False)

    @property
    def id(self) -> str:
        """The id of the draw."""
        return self.draw_id

    @property
    def records_domain(self) -> Domain | None:
        """The domain of the records, if their owner can compare them with the answers."""
        return None

    def noisy_number(self) -> tuple[float, float] | None:
        """Returns the noisy number of records, and its standard error.

        Returns:
            Both in records; None where the number is public, or no error of it is stated.
        """
        return None

    def not_counted(self) -> str:
        """Returns which records inside the domain it does not count, in words; empty if none."""
        return ""

    def public_keys(self) -> Mapping[str, str]:
        """Returns the public random values that were drawn before any record was read, by name."""
        return {}


@functools.cache
def library_versions() -> dict[str, str]:
    """Returns the versions that a card states: Python, this package, what it computes with."""
    versions = {"python": platform.python_version()}
    for library in _LIBRARIES:
        try:
            versions[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            versions[library] = "not installed"
    return versions


def plain_json(value: Any) -> Any:
    """Returns the value as JSON holds it: numpy numbers and tuples replaced, all numbers finite."""
    if isinstance(value, np.generic):
        return plain_json(value.item())
    if isinstance(value, Mapping):
        return {str(key): plain_json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError("card", value, "must hold finite numbers only")
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise InputError("card", type(value).__name__, "must hold JSON values only")
