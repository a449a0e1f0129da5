"""What all releases share: a base class, JSON values, and noisy counts of records left out."""

from __future__ import annotations

import functools
import importlib.metadata
import math
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np

from beam_dp.checks import is_integer, is_number
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
        return str(parts.view("terminal").summary_of(self))

    def _repr_html_(self) -> str:
        return str(parts.view("terminal").release_html(self))


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
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError("card", value, "must contain finite numbers only")
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise InputError("card", type(value).__name__, "must contain JSON values only")


_ERRORS = ("standard_error", "bound", "sum_standard_error", "sum_bound", "failure_probability")


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """Noisy counts of the records outside the domain; each record counts once.

    The counts are unbiased and may be negative. A unit contributes at most as many records to the
    counts as the guarantee allows. ``impossible`` counts records that are left out only because
    their values form an impossible combination; None if the domain declares none.
    """

    counts: Mapping[str, int]
    impossible: int | None
    scale: float  # the scale of the discrete Laplace noise of each count, in records
    standard_error: float  # of each count, from the noise alone, in records
    bound: float
    sum_standard_error: float
    sum_bound: float
    failure_probability: float
    budget: Mapping[str, Mapping[str, float]]

    def __post_init__(self) -> None:
        counts = [*self.counts.values(), *([] if self.impossible is None else [self.impossible])]
        if not all(is_integer(value) and -(2**63) <= value < 2**63 for value in counts):
            raise InputError("left_out", "counts", "must be integers of 64 bits")
        for name in ("scale", *_ERRORS):
            if not _is_number(getattr(self, name)):
                raise InputError("left_out", name, "must be a finite number >= 0")
        shares = self.budget.values() if isinstance(self.budget, Mapping) else ()
        fits = set(self.budget) == {"release", "left_out"} and all(
            isinstance(part, Mapping)
            and set(part) == {"epsilon", "delta"}
            and all(map(_is_number, part.values()))
            for part in shares
        )
        if not fits:
            condition = "must have an epsilon and a delta of the release and of left_out"
            raise InputError("left_out", "budget", condition)

    @property
    def total(self) -> int:
        """The sum of all counts."""
        return sum(self.counts.values()) + (self.impossible or 0)

    def check(self, domain: Domain) -> None:
        """Raises InputError if the counts belong to another domain."""
        if tuple(self.counts) != domain.names:
            condition = "must be one count per attribute, in the order of the domain"
            raise InputError("left_out", "counts", condition)
        if (self.impossible is None) == bool(domain.impossible):
            condition = "must be a count if and only if the domain declares impossible combinations"
            raise InputError("left_out", "impossible", condition)

    def to_json(self) -> dict[str, Any]:
        """Returns the counts and their errors as JSON values for a card."""
        impossible = {} if self.impossible is None else {"impossible": self.impossible}
        return {
            "sum": self.total,
            "counts": dict(self.counts),
            **impossible,
            "noise": {"distribution": "discrete_laplace", "scale": self.scale},
            **{name: getattr(self, name) for name in _ERRORS},
            "budget": {name: dict(part) for name, part in self.budget.items()},
        }

    @classmethod
    def from_json(cls, parsed: Any) -> Self:
        """Returns the counts in the JSON values of a card; raises InputError for other values."""
        fields = {"counts": dict, "noise": dict, "budget": dict}
        for name, kind in fields.items():
            if not isinstance(parsed, dict) or not isinstance(parsed.get(name), kind):
                raise InputError("left_out", name, "must be present and be a JSON object")
        if parsed["noise"].get("distribution") != "discrete_laplace":
            raise InputError("left_out", "noise", "must be discrete_laplace")
        left_out = cls(
            counts=parsed["counts"],
            impossible=parsed.get("impossible"),
            scale=parsed["noise"].get("scale"),
            budget=parsed["budget"],
            **{name: parsed.get(name) for name in _ERRORS},
        )
        if parsed.get("sum") != left_out.total:
            raise InputError("left_out", "sum", f"must be that of the counts, {left_out.total}")
        return left_out


def _is_number(value: object) -> bool:
    return is_number(value) and 0 <= value <= sys.float_info.max
