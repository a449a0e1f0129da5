"""Workloads of marginals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

from beam_dp.checks import check_is, checked_integer, checked_weight
from beam_dp.domain.attributes import nearest_known
from beam_dp.domain.discover import OpenDomain
from beam_dp.domain.texts import json_text, parsed_lines
from beam_dp.domain.universe import Domain, Names
from beam_dp.errors import InputError, shown

MAX_MARGINALS = 1_000_000
_KNOWN_FORMS = (
    "known are 'marginals:2' for all pairs, 'marginals:age,sex;age,education' and a file of JSON"
    " lines"
)


class OfWorkload:
    """What is about a workload, and so about the workload's domain."""

    workload: Any

    @property
    def domain(self) -> Domain:
        """The domain of the workload."""
        domain: Domain = self.workload.domain
        return domain


@dataclass(frozen=True)
class Workload:
    """A set of marginals of one domain, each with a weight.

    A marginal is a table of counts of the records by some attributes, one cell per combination of
    codes.

    Args:
        domain: the domain of the records.
        marginals: distinct sets of attribute names; the names of a set are put in domain order.
        weights: the importance of the error of each marginal, from 1e-100 to 1e100; 1.0 by default.

    Example:
        >>> from beam_dp.domain.files import read_domain
        >>> workload = Workload(read_domain('{"age": 85, "sex": 2}'), (("sex", "age"),))
        >>> workload.marginals, workload.weights, workload.num_cells()
        ((('age', 'sex'),), (1.0,), 170)
    """

    domain: Domain
    marginals: tuple[Names, ...]
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_is("domain", self.domain, Domain)
        ordered = tuple(_in_domain_order(self.domain, names) for names in self.marginals)
        if not ordered:
            raise InputError("workload", [], "must contain at least one marginal")
        if len(ordered) > MAX_MARGINALS:
            raise InputError("workload", len(ordered), f"must be <= {MAX_MARGINALS} marginals")
        seen = set()
        for names in ordered:
            if names in seen:
                raise InputError("workload", ",".join(names), "must list each marginal once")
            seen.add(names)
        weights = tuple(checked_weight("weights", weight) for weight in self.weights)
        weights = weights or (1.0,) * len(ordered)
        if len(weights) != len(ordered):
            raise InputError("weights", len(weights), f"must be one per marginal, {len(ordered)}")
        object.__setattr__(self, "marginals", ordered)
        object.__setattr__(self, "weights", weights)

    def __len__(self) -> int:
        return len(self.marginals)

    def __iter__(self) -> Iterator[Names]:
        return iter(self.marginals)

    def num_cells(self) -> int:
        """Returns the number of cells of all marginals together."""
        return sum(self._cells(names) for names in self.marginals)

    def closure(self) -> tuple[Names, ...]:
        """Returns every subset of every marginal, including the empty set, smallest first.

        Cost: O(2^k) per marginal of k attributes.
        """
        return self._closure

    @cached_property
    def _closure(self) -> tuple[Names, ...]:
        subsets = {
            subset
            for names in self.maximal()
            for size in range(len(names) + 1)
            for subset in combinations(names, size)
        }
        return tuple(sorted(subsets, key=lambda names: (len(names), self.domain.axes(names))))

    def maximal(self) -> tuple[Names, ...]:
        """Returns the marginals that no other marginal contains, in workload order."""
        return self._maximal

    @cached_property
    def _maximal(self) -> tuple[Names, ...]:
        # Only a longer marginal that shares an attribute can contain a marginal.
        longest_first = sorted(map(frozenset, self.marginals), key=len, reverse=True)
        holders: dict[str, list[frozenset[str]]] = {}
        kept = set()
        for names in longest_first:
            rarest = min((holders.get(name, []) for name in names), key=len)
            if not any(names <= holder for holder in rarest):
                kept.add(names)
                for name in names:
                    holders.setdefault(name, []).append(names)
        return tuple(names for names in self.marginals if frozenset(names) in kept)

    def to_json(self) -> dict[str, Any]:
        """Returns the workload without its domain, as JSON values for a card."""
        return {"marginals": [list(names) for names in self.marginals], "weights": [*self.weights]}

    def _cells(self, names: Names) -> int:
        return math.prod(self.domain.shape[axis] for axis in self.domain.axes(names))


def workload_from_json(parsed: Any, domain: Domain) -> Workload:
    """Builds a workload from parsed JSON: the inverse of ``Workload.to_json``."""
    if not isinstance(parsed, dict) or set(parsed) != {"marginals", "weights"}:
        raise InputError("workload", parsed, "must have marginals and weights")
    marginals, weights = parsed["marginals"], parsed["weights"]
    if not isinstance(marginals, list):
        raise InputError("workload", marginals, "must be a list of marginals")
    if not isinstance(weights, list) or (marginals and not weights):
        raise InputError("weights", weights, "must be a list of numbers, one per marginal")
    return Workload(domain, tuple(marginals), tuple(weights))


def marginals(
    domain: Domain | OpenDomain,
    *,
    ways: int | None = None,
    attributes: Sequence[str] | Sequence[Sequence[str]] | None = None,
) -> Workload:
    """Returns a workload of marginals, with weights 1.

    Args:
        domain: the domain of the records; if attributes are to be discovered, the workload is
            that of the largest domain that may be found.
        ways: K; the workload then has every marginal of K attributes.
        attributes: one marginal as a list of names, or several marginals as a list of lists. If
            ``ways`` is given too, the list of names from which K attributes are chosen.

    Raises:
        InputError: if neither argument is given, or an argument is invalid.

    Example:
        >>> from beam_dp.domain.files import read_domain
        >>> domain = read_domain('{"age": 85, "sex": 2, "education": 16}')
        >>> len(marginals(domain, ways=2))
        3
        >>> marginals(domain, attributes=["sex", "age"]).marginals
        (('age', 'sex'),)
    """
    domain = domain.bounded() if isinstance(domain, OpenDomain) else domain
    check_is("domain", domain, Domain)
    if attributes is not None and (isinstance(attributes, str) or not attributes):
        raise InputError("attributes", attributes, "must be a list of names, or a list of lists")
    flat = attributes is not None and all(isinstance(attribute, str) for attribute in attributes)
    if ways is None:
        if attributes is None:
            raise InputError("ways", None, "must be given where attributes are not")
        chosen = (attributes,) if flat else tuple(attributes)
        return Workload(domain, chosen)  # type: ignore[arg-type]  # checked by Workload
    if attributes is not None and not flat:
        raise InputError("attributes", attributes, "must be one list of names, together with ways")
    names = domain.names if attributes is None else _in_domain_order(domain, attributes)
    checked_integer("ways", ways, 1, len(names))
    if math.comb(len(names), ways) > MAX_MARGINALS:
        condition = f"makes {math.comb(len(names), ways)} marginals; must make <= {MAX_MARGINALS}"
        raise InputError("ways", ways, condition)
    return Workload(domain, tuple(combinations(names, ways)))


def parse_workload(spec: str, domain: Domain) -> Workload:
    """Reads a workload from a command-line value or a file.

    Args:
        spec: ``marginals:3`` (every set of 3 attributes), ``marginals:age,sex;age,education``, or
            JSON lines such as ``{"marginal": ["age", "sex"]}`` with an optional ``"weight"``, or
            the path of a local file of JSON lines. Names that contain a comma or a semicolon need
            JSON.
        domain: the domain of the records.

    Raises:
        InputError: if ``spec`` has another form, or names an attribute that the domain lacks.

    Example:
        >>> from beam_dp.domain.files import read_domain
        >>> domain = read_domain('{"age": 85, "sex": 2}')
        >>> parse_workload("marginals:age;sex,age", domain).marginals
        (('age',), ('age', 'sex'))
    """
    check_is("domain", domain, Domain)
    if not isinstance(spec, str):
        raise InputError("workload", spec, f"must be a string; {_KNOWN_FORMS}")
    form, colon, rest = spec.partition(":")
    if colon and form == "marginals":
        if rest.strip().lstrip("+-").isdecimal():
            try:
                return marginals(domain, ways=int(rest))
            except ValueError as error:
                condition = getattr(error, "condition", "is too long a number")
                raise InputError("workload", spec, f"the number of ways {condition}") from None
        tables = tuple(
            tuple(part if part in domain else part.strip() for part in table.split(","))
            for table in rest.split(";")
        )
        return Workload(domain, tables)
    if colon and form in ("conjunctions", "intervals"):
        raise InputError("workload", spec, f"must be of marginals; {_KNOWN_FORMS}")
    text = json_text("workload", spec, f"; {_KNOWN_FORMS}")
    return _parse_lines(text, spec, domain)


def _parse_lines(text: str, source: str, domain: Domain) -> Workload:
    """Reads JSON lines; skips blank lines."""
    tables: list[Names] = []
    weights: list[float] = []
    for number, entry in parsed_lines("workload", source, text):
        if not isinstance(entry, dict) or "marginal" not in entry:
            condition = f'line {number} must be an object such as {{"marginal": ["age", "sex"]}}'
            raise InputError("workload", source, condition)
        for key in entry:
            if key not in ("marginal", "weight"):
                condition = f"line {number} has the unknown key {shown(key)}"
                raise InputError("workload", source, condition)
        try:
            weight = entry.get("weight", 1.0)
            weights.append(checked_weight("weight", weight, note=", as a weight"))
            tables.append(_in_domain_order(domain, entry["marginal"]))
        except InputError as error:
            condition = f"line {number}: {shown(error.value)}: {error.condition}"
            raise InputError("workload", source, condition) from None
    if not tables:
        raise InputError("workload", source, "must contain at least one marginal")
    return Workload(domain, tuple(tables), tuple(weights))


def _in_domain_order(domain: Domain, names: Any) -> Names:
    """Returns the checked names of one marginal in domain order."""
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise InputError("workload", names, "a marginal must be a list of attribute names")
    if not names:
        raise InputError("workload", names, "a marginal must name at least one attribute")
    for name in names:
        if name not in domain:
            condition = f"is not an attribute; {nearest_known(name, domain.names)}"
            raise InputError("workload", name, condition)
    if len(set(names)) < len(names):
        raise InputError("workload", ",".join(names), "a marginal must name an attribute once")
    return tuple(sorted(names, key=lambda name: domain.axes((name,))))
