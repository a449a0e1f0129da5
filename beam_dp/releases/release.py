"""The base class of all releases, with the common fields and the JSON values of a card."""

from __future__ import annotations

import functools
import importlib.metadata
import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.releases import parts

_LIBRARIES = ("beam_dp", "numpy", "scipy", "opendp")


class Shard(Protocol):
    """The rows of one file of records of a release."""

    @property
    def draw_id(self) -> str:
        """The id of the release's draw."""

    @property
    def name(self) -> str:
        """The name of the file."""

    def to_plain(self) -> tuple[str, tuple[bytes, ...]]:
        """Returns the shard as values that a pipeline can pass from step to step."""


class AnyRelease(Protocol):
    """A public release of any kind, or the public releases of many windows."""

    KIND: ClassVar[str]  # a name in the table of kinds
    ID_OF: ClassVar[str]  # what ``id`` names: a draw of noise, or a horizon

    @property
    def id(self) -> str:
        """32 hexadecimal digits."""

    @property
    def guarantee(self) -> Guarantee:
        """The privacy guarantee for the people in the data."""

    @property
    def mechanism(self) -> str:
        """The name of the mechanism that made the release."""

    @property
    def card(self) -> Mapping[str, Any]:
        """The content of the card as JSON values, except the head and the list of files."""

    @property
    def plan(self) -> Mapping[str, Any]:
        """The public parameters of the mechanism's plan, as JSON values."""

    @property
    def noise(self) -> Sequence[Mapping[str, Any]]:
        """The noise of each measurement: the measured quantity, the distribution and the scale."""

    @property
    def records_domain(self) -> Domain | None:
        """The domain of the records, if their owner can compare them with the answers."""


if TYPE_CHECKING:
    _Base = AnyRelease
else:
    _Base = object  # some kinds define properties of ``AnyRelease`` as fields


class Displayed(_Base):
    """How a release is shown in notebooks."""

    def summary(self) -> str:
        """Returns what the card states, as `beam-dp describe` prints it."""
        return str(parts.view("notebook").summary_of(self))

    def _repr_html_(self) -> str:
        return str(parts.view("notebook").release_html(self))


@dataclass(frozen=True, eq=False, kw_only=True)
class Release(Displayed):
    """A public release of any kind, which may be copied and queried at no further privacy cost.

    Subclasses have the fields of ``AnyRelease``, and override the methods below if they have more
    information. The functions of ``kinds`` read and write releases.

    Args:
        draw_id: the id of the draw of noise; 32 hexadecimal digits.
        guarantee: the privacy guarantee for the people in the data.

    Attributes:
        read_from: the JSON values of the card, if the release was read from a card; else None.
        directory: the directory, if the release was read from one, where earlier releases may be.
    """

    KIND: ClassVar[str]
    ID_OF: ClassVar[str] = "draw"

    draw_id: str
    guarantee: Guarantee
    read_from: Mapping[str, Any] | None = field(default=None, init=False, repr=False)
    directory: str | None = field(default=None, init=False, repr=False)

    @property
    def id(self) -> str:
        """The id of the draw."""
        return self.draw_id

    @property
    def records_domain(self) -> Domain | None:
        """The domain of the records, if their owner can compare them with the answers."""
        return None

    @property
    def num_shards(self) -> int:
        """The number of files of records."""
        return 0

    def shards(self) -> Iterator[Shard]:
        """Yields the rows of each file of records, in order."""
        yield from ()

    def noisy_number(self) -> tuple[float, float] | None:
        """Returns the noisy number of records and its error; None if public, or not stated."""
        return None

    def not_counted(self) -> str:
        """Returns a description of records in the domain that are not counted; empty if all are."""
        return ""

    def public_keys(self) -> Mapping[str, str]:
        """Returns the public random values, by name, that were drawn before reading any record."""
        return {}


@functools.cache
def library_versions() -> dict[str, str]:
    """Returns the versions of Python, of this package and of its numerical libraries."""
    versions = {"python": platform.python_version()}
    for library in _LIBRARIES:
        try:
            versions[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            versions[library] = "not installed"
    return versions


def plain_json(value: Any) -> Any:
    """Converts numpy numbers and tuples to JSON values; raises InputError if not finite."""
    if isinstance(value, np.generic):
        return plain_json(value.item())
    if isinstance(value, Mapping):
        return {str(key): plain_json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError("card", value, "must contain finite numbers only")
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise InputError("card", type(value).__name__, "must contain JSON values only")
