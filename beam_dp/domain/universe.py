"""The `Domain`: declared attributes in order, and the numbering of its cells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beam_dp.domain.attributes import MAX_INDEXED_CELLS, Attribute, PaidRelease, nearest_known
from beam_dp.domain.impossible import (
    Impossible,
    check_combinations,
    combination_to_json,
    read_combinations,
    restrict_combinations,
)
from beam_dp.domain.ordered import NumericAttribute
from beam_dp.errors import InputError, shown

Names = tuple[str, ...]  # of attributes
Axes = tuple[int, ...]  # positions of attributes


def check_types_from(types_from: object) -> None:
    """Refuses a domain whose types come from anything but people or the records."""
    if types_from not in ("", "data"):
        raise InputError("types_from", types_from, "must be 'data' or be left out")


@dataclass(frozen=True)
class Domain:
    """The universe of records: the product of the attributes.

    Cells are numbered in C order (the last attribute varies fastest), as by
    ``numpy.ravel_multi_index``. The cells of domains with more than 2^62 cells are not numbered;
    records of such domains are handled as columns of codes.

    Args:
        attributes: the columns, in cell order, with distinct names. A domain without attributes
            has one cell, the cell of the empty marginal.
        impossible: combinations of levels that no record has (see ``with_impossible``). Impossible
            cells are numbered like other cells.
        types_from: ``"data"`` if the types follow from the records, as in a file whose writer chose
            them by its values: an assumption that no guarantee covers.

    Example:
        >>> from beam_dp.domain.attributes import BooleanAttribute
        >>> from beam_dp.domain.ordered import IntegerAttribute
        >>> domain = Domain((IntegerAttribute("age", 0, 84), BooleanAttribute("member")))
        >>> domain.names, domain.shape, domain.num_cells
        (('age', 'member'), (85, 2), 170)
        >>> domain.cell_index([[3, 84], [1, 0]])
        array([  7, 168])
    """

    attributes: tuple[Attribute, ...]
    impossible: tuple[Impossible, ...] = ()
    types_from: str = ""
    # Numeric attributes of which records also have a place within their bin, when they are counted.
    placed: tuple[NumericAttribute, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        check_types_from(self.types_from)
        object.__setattr__(self, "attributes", tuple(self.attributes))
        seen = set()
        for attribute in self.attributes:
            if not isinstance(attribute, Attribute):
                raise InputError("domain", attribute, "must contain only attributes")
            if attribute.name in seen:
                raise InputError("domain", attribute.name, "attribute names must be distinct")
            seen.add(attribute.name)
        object.__setattr__(self, "impossible", tuple(self.impossible))
        if self.impossible:
            check_combinations(self.attributes, self.impossible)

    def with_impossible(self, combinations: Sequence[Mapping[str, Sequence[Any]]]) -> Domain:
        """Returns the domain with these combinations declared impossible, too.

        What was declared impossible before stays so. Records that match a combination are outside
        the domain, and a release gives impossible cells no weight.

        Args:
            combinations: lists of levels, keyed by the names of at least two attributes. A level is
                a declared value, or ``"other"`` or None if the attribute declares these. Integers
                may be pairs ``[low, high]``, both included. Bins are pairs of edges.

        Raises:
            InputError: for an unknown attribute or level, a combination with all levels of an
                attribute, a repeated combination, or a level that can't occur in any combination.

        Example:
            >>> from beam_dp.domain.attributes import BooleanAttribute
            >>> from beam_dp.domain.ordered import IntegerAttribute
            >>> domain = Domain((IntegerAttribute("age", 0, 84), BooleanAttribute("married")))
            >>> domain = domain.with_impossible([{"age": [[0, 15]], "married": [True]}])
            >>> domain.impossible
            (Impossible(axes=(0, 1), ranges=(((0, 16),), ((1, 2),))),)
        """
        added = read_combinations(self.attributes, combinations)
        new = [combination for combination in added if combination not in self.impossible]
        return replace(self, impossible=(*self.impossible, *new))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The attributes' names, in cell order."""
        return tuple(attribute.name for attribute in self.attributes)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The attributes' sizes, in cell order."""
        return tuple(attribute.size for attribute in self.attributes)

    @cached_property
    def num_cells(self) -> int:
        """Number of cells, a Python integer of any size."""
        return math.prod(self.shape)

    @property
    def num_attributes(self) -> int:
        """Number of attributes."""
        return len(self.attributes)

    @property
    def has_index(self) -> bool:
        """Whether cells are numbered: the domain has at most 2^62 cells."""
        return self.num_cells <= MAX_INDEXED_CELLS

    @cached_property
    def groups(self) -> tuple[Domain, ...]:
        """Domains of consecutive attributes, each domain with at most 2^62 cells."""
        runs: list[list[Attribute]] = []
        num_cells = MAX_INDEXED_CELLS + 1
        for attribute in self.attributes:
            num_cells *= attribute.size
            if num_cells > MAX_INDEXED_CELLS:
                runs.append([])
                num_cells = attribute.size
            runs[-1].append(attribute)
        return tuple(Domain(tuple(run)) for run in runs)

    def possible(self) -> NDArray[np.bool_]:
        """Returns a mask of the cells that no impossible combination excludes, (num_cells,)."""
        possible = np.ones(self.shape, np.bool_)
        for rule in self.impossible:
            where = [size if axis in rule.axes else 1 for axis, size in enumerate(self.shape)]
            possible &= ~rule.mask(self.shape).reshape(where)
        return possible.ravel()

    @cached_property
    def _axis(self) -> dict[str, int]:
        return {name: axis for axis, name in enumerate(self.names)}

    def __contains__(self, name: object) -> bool:
        return name in self._axis

    def __iter__(self) -> Iterator[Attribute]:
        return iter(self.attributes)

    def __getitem__(self, name: str) -> Attribute:
        return self.attributes[self.axes((name,))[0]]

    def axes(self, names: Iterable[str]) -> tuple[int, ...]:
        """Returns the position of each name in order; raises InputError for an unknown name."""
        positions = []
        for name in names:
            if name not in self._axis:
                condition = f"is not an attribute; {nearest_known(str(name), self.names)}"
                raise InputError("attribute", name, condition)
            positions.append(self._axis[name])
        return tuple(positions)

    def restrict(self, names: Iterable[str]) -> Domain:
        """Returns the domain of the marginal on these attributes, in the given order.

        The result still excludes the impossible combinations of these attributes.

        Raises:
            InputError: if a name is not in the domain, or is given twice.
        """
        axes = self.axes(names)
        attributes = tuple(self.attributes[axis] for axis in axes)
        if not self.impossible:
            return Domain(attributes)
        return Domain(attributes, restrict_combinations(self.impossible, axes))

    def cell_index(self, codes: Sequence[ArrayLike]) -> NDArray[np.int64]:
        """Returns the cell of each record, shape (n,), int64.

        Args:
            codes: one array of shape (n,) per attribute, integers in ``0..size-1``.

        Raises:
            InputError: if the domain has no index.
            ValueError: if the numbers of columns and attributes differ.
            IndexError: if a code is not below the size of its attribute, or is negative.
        """
        self._require_index()
        if len(codes) != self.num_attributes:
            raise ValueError(f"{len(codes)} columns for {self.num_attributes} attributes")
        if not codes:
            return np.zeros(1, np.int64)
        index = np.zeros(np.shape(codes[0]), np.int64)
        for attribute, column in zip(self.attributes, codes, strict=True):
            array = np.asarray(column)
            if array.size and (int(array.min()) < 0 or int(array.max()) >= attribute.size):
                raise IndexError(f"a code of {attribute.name!r} is not in 0..{attribute.size - 1}")
            index *= attribute.size
            index += array.astype(np.int64, copy=False)
        return index

    def words(self, codes: Sequence[ArrayLike]) -> Iterator[NDArray[np.int64]]:
        """Yields, for each of ``groups``, the cells of records, given as for ``cell_index``."""
        # A record of a domain of any size becomes a few integers, which sort in the order of cells.
        if len(codes) != self.num_attributes:
            raise ValueError(f"{len(codes)} columns for {self.num_attributes} attributes")
        start = 0
        for group in self.groups:
            yield group.cell_index(codes[start : start + group.num_attributes])
            start += group.num_attributes

    def codes(self, cell_index: ArrayLike) -> tuple[NDArray[np.int64], ...]:
        """Returns the codes in each cell, one int64 array of shape (n,) per attribute.

        Args:
            cell_index: shape (n,), integers in ``0..num_cells-1``.

        Raises:
            InputError: if the domain has no index.
            IndexError: if a cell is not in the domain.
        """
        self._require_index()
        rest = np.asarray(cell_index, dtype=np.int64)
        if rest.size and (int(rest.min()) < 0 or int(rest.max()) >= self.num_cells):
            raise IndexError(f"a cell is not in 0..{self.num_cells - 1}")
        codes: list[NDArray[np.int64]] = []
        for size in reversed(self.shape):
            whole = rest // size  # numpy's divmod takes twice as long
            codes.append(rest - whole * size)
            rest = whole
        return tuple(reversed(codes))

    def check_same(self, other: Domain, name: str, value: object, condition: str) -> None:
        """Refuses an argument whose domain differs; the message names the first difference."""
        if other != self:
            raise InputError(name, value, f"{condition}: {self._difference(other)}")

    def _difference(self, other: Domain) -> str:
        for name in self.names:
            if name not in other:
                return f"it lacks {shown(name)}"
        for name in other.names:
            if name not in self:
                return f"it also has {shown(name)}"
        for mine, its in zip(self, other, strict=True):
            if mine.name != its.name:
                return f"it has {shown(its.name)} in the place of {shown(mine.name)}"
            if mine != its:
                return f"its {shown(mine.name)} has {_first_change(mine.to_json(), its.to_json())}"
        if self.types_from != other.types_from:
            return "its types come from elsewhere"
        return "it declares other combinations impossible"

    def to_json(self) -> dict[str, Any]:
        """Returns the domain as JSON values of a domain file."""
        parsed: dict[str, Any] = {"attributes": [column.to_json() for column in self.attributes]}
        if self.impossible:
            parsed["impossible"] = [
                combination_to_json(self.attributes, combination) for combination in self.impossible
            ]
        return parsed | ({"types_from": self.types_from} if self.types_from else {})

    def _require_index(self) -> None:
        if not self.has_index:
            raise InputError("domain", self.num_cells, "must have at most 2^62 cells to be indexed")


def _first_change(mine: Mapping[str, Any], its: Mapping[str, Any]) -> str:
    """Describes the first declaration that differs: a value, or an item of a list."""
    for key in {**mine, **its}:
        one, other = mine.get(key), its.get(key)
        if one == other:
            continue
        if other is None:
            return f"no {shown(key)}"
        if one is None:
            return f"{key} {shown(other)}"
        if isinstance(one, list) and isinstance(other, list):
            for place, (first, second) in enumerate(zip(one, other, strict=False)):
                if first != second:
                    return f"{key}[{place}] {shown(second)}, not {shown(first)}"
            return f"{len(other)} {key}, not {len(one)}"
        return f"{key} {shown(other)}, not {shown(one)}"
    return "another form"


def released_edges(attributes: Iterable[object]) -> Iterator[tuple[str, PaidRelease]]:
    """Yields pairs for edges and values from earlier releases: a sentence, and the release."""
    for attribute in attributes:
        for what, name in (("edges", "edges_from"), ("values", "values_from")):
            origin: PaidRelease | None = getattr(attribute, name, None)
            if origin is not None:
                name = shown(getattr(attribute, "name", ""))
                yield f"the {what} of {name} come from the release {origin.text}", origin


def check_edges_budget(attributes: Iterable[object], dataset_id: str | None) -> None:
    """Refuses edges and values from an earlier release that another budget paid for."""
    # A transform can check only the dataset id in its token, if any. Two ledgers may have the same
    # dataset id; ``releases.domain.earlier`` distinguishes the ledgers.
    for source, origin in released_edges(attributes):
        if dataset_id != origin.dataset_id:
            if origin.dataset_id is None:
                raise InputError("ledger_token", dataset_id, f"must be left out: {source}")
            budget = f"{shown(origin.dataset_id)}, the budget of the earlier release"
            raise InputError("ledger_token", dataset_id, f"must be of {budget}: {source}")
