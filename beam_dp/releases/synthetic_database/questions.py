"""Questions about synthetic records: counts, means, quantiles, correlations and more."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer, checked_number
from beam_dp.domain import ordered
from beam_dp.domain.attributes import (
    NULL_LABEL,
    Attribute,
    BooleanAttribute,
    ListedAttribute,
    nearest_known,
)
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError, shown
from beam_dp.installed import check_installed
from beam_dp.queries.dense_tables import Vector, VectorQuery
from beam_dp.queries.where import Mask, read_condition
from beam_dp.releases import parts
from beam_dp.releases.error_bars import FROM_NOISE, Estimate, weakest_kind
from beam_dp.releases.synthetic_database.bin_sums import BinMeans
from beam_dp.releases.synthetic_database.estimates import Estimates
from beam_dp.releases.synthetic_database.moments import (
    Column,
    Statistic,
    correlation,
    estimated,
    regression,
    variance,
)
from beam_dp.releases.synthetic_database.proved_bounds import ProvedBounds
from beam_dp.releases.synthetic_database.records import column_values

if TYPE_CHECKING:
    import pyarrow as pa

Ends = tuple[NDArray[Any], NDArray[Any]]

MAX_GROUPS = 2**16
# The columns of answers; a group column with one of these names is renamed.
BESIDE_ANSWERS = frozenset(
    ["standard_error", "margin", "bound", "within_bins", "low", "high", "of", "error", "reason"]
) | {"widest_bin"}
FROM_NOISE_AND_BINS = "from noise and bins"
_MOST_IN_BINS = 2**14  # counts of bins by group
_MAX_SHOWN = 50  # the number of rows to print


@dataclass(frozen=True, repr=False)
class AnswerTable:
    """Answers with error bars, one row per group, printed as a table.

    ``columns``: the values by column name. First the columns of the groups (with ``_`` after a name
    that is also the name of a column of answers), then the answer, ``standard_error``, ``margin``
    (the answer is within the margin of the truth in 95 % of cases), for counts and sums ``bound``
    (a proved bound: all answers of the table are within their bounds, except with probability 0.05;
    None without a proof), ``error`` (the kind of the error bar, see ``Estimate``, or "from noise
    and bins"; None without an error bar) and ``reason`` (why there is no error bar, or no end of
    one). Margins and bounds of binned values include the error due to unknown positions within
    bins; ``within_bins`` is this part of the margin. ``of`` names the values that the truth is
    about, if not all: those beyond the ends of a column may count as the ends, or not at all.
    ``num_groups``: the number of columns that identify a group. They contain integers, booleans and
    strings as in the released records, the label of a bin, and None for null.

    Example:
        >>> AnswerTable({"sex": ["Female", "Male"], "count": [1094.125, 85.9], "reason": ["", ""]})
        sex       count
        Female  1,094.1
        Male       85.9
    """

    columns: Mapping[str, Sequence[Any]]
    num_groups: int = 0

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def rows(self) -> list[dict[str, Any]]:
        """Returns each row as a dictionary by column name."""
        rows = zip(*self.columns.values(), strict=True)
        return [dict(zip(self.columns, values, strict=True)) for values in rows]

    def _written(self) -> Iterator[tuple[bool, list[str]]]:
        """Yields each column that says something: whether it is text, its name and its values."""
        for place, (name, values) in enumerate(self.columns.items()):
            if name == "reason" and not any(values):
                continue
            is_group = place < self.num_groups
            is_text = is_group or all(isinstance(value, str | None) for value in values)
            written = group_text if is_group else answer_text
            yield is_text, [name, *map(written, values[:_MAX_SHOWN])]

    def __repr__(self) -> str:
        columns = []
        for is_text, texts in self._written():
            # Numbers are right-aligned.
            width = max(map(len, texts))
            columns.append([text.ljust(width) if is_text else text.rjust(width) for text in texts])
        lines = ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]
        if len(self) > _MAX_SHOWN:
            lines.append(f"{_MAX_SHOWN} of {len(self):,} rows; to_arrow() has all")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return str(parts.view("terminal").answers_html(list(self._written()), len(self)))

    def plot(self, axes: Any = None) -> Any:
        """Draws a bar for each group, with its margin; returns matplotlib's axes.

        Args:
            axes: matplotlib's axes to draw in; by default those of a new figure.

        Raises:
            InputError: for more than 60 groups.
            ModuleNotFoundError: if matplotlib is not installed.
        """
        return parts.view("terminal").plot_answers(self.columns, self.num_groups, axes)

    def to_arrow(self) -> pa.Table:
        """Returns the answers as an Arrow table."""
        check_installed("pyarrow")
        import pyarrow as pa

        return pa.table({name: list(values) for name, values in self.columns.items()})

    def to_pandas(self) -> Any:
        """Returns the answers as a pandas DataFrame."""
        check_installed("pandas")
        return self.to_arrow().to_pandas()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Returns the Arrow stream that polars, DuckDB and other libraries read."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)


@dataclass(frozen=True, eq=False)
class Question:
    """A question about some records of a release, which ``SyntheticDatabase.query`` returns.

    Example:
        >>> young = release.query("sex == 'female' and age < 40")  # doctest: +SKIP
        >>> young.group_by("class").mean("fare").to_pandas()  # doctest: +SKIP
    """

    bounded: ProvedBounds
    masks: Mapping[int, Mask]
    groups: tuple[str, ...] = ()
    bins: Mapping[str, BinMeans] = field(default_factory=dict)

    def where(self, condition: str) -> Question:
        """Adds a condition, see ``read_condition``, that the records must satisfy."""
        masks = dict(self.masks)
        for axis, mask in read_condition(self._domain, condition).items():
            masks[axis] = masks[axis] & mask if axis in masks else mask
            if not masks[axis].any():
                raise InputError("where", condition, "must be true for some of the records")
        return replace(self, masks=masks)

    def group_by(self, *names: str | list[str] | tuple[str, ...]) -> Question:
        """Returns the question by group, one group per combination of values in the condition."""
        flat = list[str]()
        for name in names:
            flat.extend(name if isinstance(name, list | tuple) else [name])
        asked = replace(self, groups=(*self.groups, *flat))
        axes = [asked._axis(name, "group_by") for name in asked.groups]
        if len(set(axes)) < len(axes):
            raise InputError("group_by", list(asked.groups), "must name each attribute once")
        number = math.prod(int(asked._mask(axis).sum()) for axis in axes)
        if number > MAX_GROUPS:
            raise InputError("group_by", flat, f"must make at most {MAX_GROUPS:,} groups")
        return asked

    def count(self) -> AnswerTable:
        """Returns the number of records in each group."""
        answers = self.bounded.of([*self._counted().values()])
        return self._table("count", answers, has_bounds=True)

    def sum(self, name: str) -> AnswerTable:
        """Returns the sums of a column, with the middle of the bin for binned values.

        A sum is the fitted answer if the mean of the same records is the fitted answer, so a sum is
        about the number of records times the mean.
        """
        axis, values, widths = self._numbers(name)
        counted = [*self._regular(axis).values()]
        means = self._estimates.both_means(counted, axis, values)
        asked = [query.with_vectors({axis: values}) for query in counted]
        are_fitted = [self._estimates.better(*both) is both[0] for both in means]
        halves = [] if widths is None else [query.with_vectors({axis: widths}) for query in counted]
        prefers_fitted = are_fitted + [False] * len(halves)
        answers = self.bounded.of([*asked, *halves], prefers_fitted=prefers_fitted)
        if widths is None:
            return self._table(f"sum_{name}", answers, axes=[axis], has_bounds=True)
        of_bins = answers[len(asked) :]
        bins, sums, _ = self._in_bins(name, axis, widths)
        within = np.minimum([*map(_most, of_bins)], sums).tolist()
        answers = [*map(_with_bins, answers, of_bins)]
        if name in self.bins:  # bounds are proved for weights that no noise has chosen: of middles
            usual = replace(self, bins={}).sum(name).columns
            bounds = zip(answers, usual[f"sum_{name}"], usual["bound"], strict=True)
            answers = [
                replace(answer, bound=None if bound is None else bound + abs(answer.value - middle))
                for answer, middle, bound in bounds
            ]
        return self._table(f"sum_{name}", answers, within, bins, axes=[axis], has_bounds=True)

    def mean(self, name: str) -> AnswerTable:
        """Returns the means of a column over the records whose value is neither null nor other."""
        axis, values, widths = self._numbers(name)
        counted = [*self._regular(axis).values()]
        answers = self._estimates.means(counted, axis, values)
        if widths is None:
            return self._table(f"mean_{name}", answers, axes=[axis])
        within = self._estimates.means(counted, axis, widths)
        least = widths[: self._domain.attributes[axis].num_levels].min()
        bins, sums, numbers = self._in_bins(name, axis, widths)
        bounds = np.clip([*map(_most, within)], least, widths.max())
        bounds = np.minimum(bounds, sums / numbers).tolist()
        return self._table(f"mean_{name}", answers, bounds, bins / numbers[:, None], axes=[axis])

    def share(self, condition: str) -> AnswerTable:
        """Returns the shares of the records that satisfy a condition on one attribute."""
        masks = read_condition(self._domain, condition)
        if len(masks) != 1:
            raise InputError("share", condition, "must be a condition on one attribute")
        ((axis, mask),) = masks.items()
        counted = [*self._counted().values()]
        answers = self._estimates.means(counted, axis, mask.astype(np.float64))
        return self._table("share", answers)

    def quantile(self, name: str, share: float) -> AnswerTable:
        """Returns, per group, the value below which a given share of the records falls.

        ``share``: the share, above 0 and below 1; 0.5 gives the median.

        Returns:
            Values, interpolated as if records were spread evenly within bins, and ``low`` and
            ``high``, which enclose the truth in about 95 % of cases: the ends of the bins that the
            share minus and plus its margin may lie in (Woodruff, 1952). Where an end of a column
            replaces the values beyond it, a bar that reaches this end is infinite.
        """
        checked_number("quantile", share, above=0, below=1, note=": 0.5 is the median")
        return self._quantile(name, share, "quantile", "of")

    def median(self, name: str) -> AnswerTable:
        """Returns the medians of a column, as ``quantile`` does."""
        return self._quantile(name, 0.5, "median")

    def min(self, name: str) -> AnswerTable:
        """Returns the least values that are reached despite the noise, which hides one record."""
        return self._quantile(name, 0.0, "min")

    def max(self, name: str) -> AnswerTable:
        """Returns the largest values that are reached despite the noise; see ``min``."""
        return self._quantile(name, 1.0, "max")

    def histogram(self, name: str) -> AnswerTable:
        """Returns the number of records with each value, or in each bin, of a column."""
        self._axis(name, "column")
        return self.group_by(name).count()

    def top(self, name: str, number: int = 10) -> AnswerTable:
        """Returns the most frequent values, whose margins hold for all values of the column."""
        checked_integer("number", number, least=1)
        counts = self.histogram(name)
        order = sorted(range(len(counts)), key=lambda row: -counts.columns["count"][row])[:number]
        columns = {key: [values[row] for row in order] for key, values in counts.columns.items()}
        wider = NormalDist().inv_cdf(1 - 0.025 / len(counts)) / NormalDist().inv_cdf(0.975)
        bars = zip(columns["margin"], columns["bound"], strict=True)
        columns["margin"] = [
            None if margin is None else bound or margin * wider for margin, bound in bars
        ]
        return AnswerTable(columns, counts.num_groups)

    def variance(self, name: str) -> AnswerTable:
        """Returns the variances of a column, the mean squared distances from the mean."""
        return self._statistic(f"variance_{name}", variance, name)

    def correlation(self, first: str, second: str) -> AnswerTable:
        """Returns Pearson's correlations of two columns."""
        return self._statistic("correlation", correlation, first, second)

    def regression(self, outcome: str, predictors: str | Sequence[str]) -> AnswerTable:
        """Returns the intercept and the slopes of the linear regression of a column on others.

        ``predictors``: columns, such as ``["age", "hours"]`` or ``"age + hours"``. Records with
        null or other in a column are left out.
        """
        if self.groups:
            condition = "must not be given for a regression: ask for each group with a condition"
            raise InputError("group_by", list(self.groups), condition)
        if isinstance(predictors, str):
            predictors = [each.strip(" `") for each in predictors.split("+")]
        if not predictors:
            raise InputError("column", predictors, "must name at least one predictor")
        table = self._statistic("coefficient", regression, *predictors, outcome)
        return AnswerTable({"term": ["intercept", *predictors], **table.columns}, 1)

    def _quantile(
        self, name: str, share: float, answer: str, argument: str = "column"
    ) -> AnswerTable:
        """Returns the values at a share of the records, with 0 and 1 for the ends."""
        axis = self._axis(name, argument)
        attribute = self._domain.attributes[axis]
        if not isinstance(attribute, ordered.IntegerAttribute | ordered.NumericAttribute):
            raise InputError(argument, name, "must be an integer or a numeric attribute")
        counted, level_ends = self._regular(axis), _level_ends(attribute)
        codes, levels = np.arange(attribute.size), range(1, attribute.num_levels + 1)
        prefixes = [(codes < end).astype(np.float64) for end in levels]
        asked = [query for query in counted.values() for _ in prefixes]
        below = self._estimates.ratios(asked, [(axis, mask) for mask in prefixes] * len(counted))
        of = "" if attribute.clip else _of(attribute)
        rows: list[tuple[Any, ...]] = []
        for start in range(0, len(below), len(prefixes)):
            part = below[start : start + len(prefixes)]
            value, low, high = _reached(level_ends, part, share, is_clipped=attribute.clip)
            reason = next((answer.reason for answer in part if answer.margin is None), None)
            if reason is None:
                is_open = math.isinf(low) or math.isinf(high)
                unknown = "an end is unknown where values beyond it were moved inside"
                reason = unknown if is_open else ""
                kind = _kind(weakest_kind(part), np.ptp(level_ends, axis=0).max())
                rows.append((value, low, high, of, kind, reason))
            else:
                rows.append((value, None, None, of, None, reason))
        names = (f"{answer}_{name}", "low", "high", "of", "error", "reason")
        columns = [list(column) for column in zip(*rows, strict=True)]
        answers = dict(zip(names, columns, strict=True))
        if not of:
            del answers["of"]
        return self._with_groups(answers)

    def _statistic(self, answer: str, statistic: Statistic, *names: str) -> AnswerTable:
        """Returns the numbers of a statistic of some columns."""
        columns = [self._numbers(name) for name in names]
        axes = [axis for axis, _, _ in columns]
        if len(set(axes)) < len(axes):
            raise InputError("column", list(names), "must name each column once")
        counted = [*self._regular(*axes).values()]
        found = estimated(statistic, self._estimates, counted, columns)
        answers, within = map(list, zip(*found, strict=True))
        conditions = next(iter(self._counted().values())).axes
        for pair in itertools.combinations(axes, min(2, len(axes))):
            together = tuple(sorted({*pair, *conditions}))
            if not self._estimates.covers(together):
                reason = " with ".join(self._domain.names[axis] for axis in together)
                reason += " was not measured"
                answers = [Estimate(each.value, reason=each.reason or reason) for each in answers]
        has_bins = any(halves is not None for _, _, halves in columns)
        return self._table(answer, answers, within if has_bins else None, axes=axes)

    @property
    def _estimates(self) -> Estimates:
        return self.bounded.estimates

    @property
    def _domain(self) -> Domain:
        return self._estimates.fitted.domain

    def _axis(self, name: str, argument: str) -> int:
        domain = self._domain
        if not isinstance(name, str) or name not in domain:
            condition = f"is not an attribute; {nearest_known(str(name), domain.names)}"
            raise InputError(argument, name, condition)
        return domain.axes((name,))[0]

    def _mask(self, axis: int) -> Mask:
        size = self._domain.shape[axis]
        return self.masks.get(axis, np.ones(size, np.bool_))

    def _counted(self) -> dict[tuple[int, ...], VectorQuery]:
        """Returns the query that counts each group's records, by the codes of the group."""
        axes = [self._axis(name, "group_by") for name in self.groups]
        vectors = {axis: mask.astype(np.float64) for axis, mask in self.masks.items()}
        queries = {}
        levels = [np.flatnonzero(self._mask(axis)).tolist() for axis in axes]
        for codes in itertools.product(*levels):
            indicators = {
                axis: _indicator(self._domain.shape[axis], code)
                for axis, code in zip(axes, codes, strict=True)
            }
            queries[codes] = VectorQuery.of({**vectors, **indicators})
        return queries

    def _regular(self, *axes: int) -> dict[tuple[int, ...], VectorQuery]:
        """Returns the queries of ``_counted``, without records that are null or other on axes."""
        regular = dict[int, Vector]()
        for axis in axes:
            attribute = self._domain.attributes[axis]
            regular[axis] = (np.arange(attribute.size) < attribute.num_levels).astype(np.float64)
        return {codes: query.with_vectors(regular) for codes, query in self._counted().items()}

    def _numbers(self, name: str) -> Column:
        """Returns a column's axis, its values by code and, with bins, half the widths of bins."""
        axis = self._axis(name, "column")
        attribute = self._domain.attributes[axis]
        values = np.zeros(attribute.size)
        if isinstance(attribute, ordered.IntegerAttribute | ordered.NumericAttribute):
            low, high = _level_ends(attribute)
            values[: attribute.num_levels] = (low + high) / 2
            widths = np.zeros(attribute.size)
            widths[: attribute.num_levels] = (high - low) / 2
            if (bins := self.bins.get(name)) is not None:
                values[: attribute.num_levels] = bins.centers
                widths[: attribute.num_levels] = bins.reach
            is_integer = isinstance(attribute, ordered.IntegerAttribute)
            return axis, values, None if is_integer else widths
        condition = "must be an integer or a numeric attribute"
        if isinstance(attribute, ListedAttribute):
            asked = name if name.isidentifier() else f"`{name}`"
            if not isinstance(attribute, BooleanAttribute):
                levels = attribute.decode(range(attribute.num_levels))
                yes = (level for level in levels if str(level).casefold() in ("yes", "y", "true"))
                asked += f" == {shown(next(yes, levels[0]))}"
            condition += f"; for the share of a level ask for share({asked!r})"
        raise InputError("column", name, condition)

    def _in_bins(self, name: str, axis: int, widths: Vector) -> tuple[Vector, Vector, Vector]:
        """Returns how far bins may move each group's sum of a column, and its number of records.

        By bin, shape (groups, bins), and together, shape (groups,), see ``BinMeans.margins``.
        """
        levels = np.eye(self._domain.attributes[axis].num_levels, self._domain.shape[axis])
        queries = [VectorQuery((), ()), *self._counted().values()]
        bins = np.zeros((len(queries) - 1, len(levels)))
        (total,) = self._estimates.of(queries[:1])
        number = self._estimates.fitted.num_represented if total.margin is None else _most(total)
        sums = np.full(len(bins), widths.max() * number)
        if len(queries) * len(levels) > _MOST_IN_BINS:
            return bins, sums, np.ones(len(bins))
        asked = [query.with_vectors({axis: level}) for query in queries for level in levels]
        counts = np.array([answer.value for answer in self._estimates.of(asked)])
        everybody, *groups = np.maximum(counts.reshape(-1, len(levels)), 0.0)
        bins = groups * widths[: len(levels)]
        if name in self.bins:
            bins, sums = self.bins[name].margins(np.array(groups), everybody)
        return bins, sums, np.maximum(np.sum(groups, axis=1), 1.0)

    def _table(
        self,
        name: str,
        answers: Sequence[Estimate],
        within: Sequence[float] | None = None,
        by_bin: Vector | None = None,
        *,
        axes: Sequence[int] = (),
        has_bounds: bool = False,
    ) -> AnswerTable:
        """Returns a table of answers, whose margins lack those within bins, given also by bin."""
        bars = list(zip(answers, within or [0.0] * len(answers), strict=True))
        columns: dict[str, Sequence[Any]] = {
            name: [answer.value for answer in answers],
            "standard_error": [answer.standard_error for answer in answers],
            "margin": [None if a.margin is None else a.margin + bins for a, bins in bars],
        }
        if has_bounds:
            columns["bound"] = [answer.bound for answer in answers]
        if within is not None:
            columns["within_bins"] = within
        if by_bin is not None:
            label = self._domain.attributes[axes[0]].label
            halves = [(margin or math.inf) / 2 for margin in columns["margin"]]
            widest = zip(by_bin.argmax(axis=1).tolist(), by_bin.max(axis=1), halves, strict=True)
            names = [label(place) if most > half else "" for place, most, half in widest]
            columns |= {"widest_bin": names} if any(names) else {}
        limits = [_of(self._domain.attributes[axis]) for axis in axes]
        of = " and ".join(filter(None, limits))
        if of:
            columns["of"] = [of] * len(answers)
        columns["error"] = [_kind(answer.kind, bins) for answer, bins in bars]
        columns["reason"] = [answer.reason for answer in answers]
        return self._with_groups(columns)

    def _with_groups(self, answers: Mapping[str, Sequence[Any]]) -> AnswerTable:
        """Returns the answers with the columns of their groups; all column names are distinct."""
        domain, columns = self._domain, dict[str, Sequence[Any]]()
        groups = [*self._counted()]
        for place, name in enumerate(self.groups):
            column = name
            while column in BESIDE_ANSWERS or column in answers or column in columns:
                column += "_"
            columns[column] = values_of(domain[name], [codes[place] for codes in groups])
        return AnswerTable({**columns, **answers}, len(self.groups))


def answer_text(value: str | float | None) -> str:
    """Returns a number or a string formatted for people."""
    if isinstance(value, str) or value is None:
        return value or ""
    if not math.isfinite(value):
        return "none" if math.isnan(value) else "unknown"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:,.4g}"


def group_text(value: str | float | None) -> str:
    """Returns the value of a group formatted for people.

    Example:
        >>> group_text(None), group_text(True), group_text(12345)
        ('null', 'true', '12345')
    """
    if value is None:
        return NULL_LABEL
    return str(value).lower() if isinstance(value, bool) else str(value)


def values_of(attribute: Attribute, codes: Sequence[int]) -> list[Any]:
    """Returns the values for some codes in the type of released records; for bins, the labels."""
    if isinstance(attribute, ordered.BinnedAttribute):
        return [None if code == attribute.null_code else attribute.label(code) for code in codes]
    return [*column_values(attribute, codes)]


def _most(answer: Estimate) -> float:
    """Returns the upper end of the 95 % error bar of a count; infinite without an error bar."""
    return math.inf if answer.margin is None else max(answer.value, 0.0) + answer.margin


def _indicator(size: int, code: int) -> NDArray[np.float64]:
    vector = np.zeros(size)
    vector[code] = 1.0
    return vector


def _with_bins(answer: Estimate, half: Estimate) -> Estimate:
    """Returns a sum with a bound that includes the summed half widths of bins."""
    if answer.bound is None or half.bound is None:
        return replace(answer, bound=None)
    return replace(answer, bound=answer.bound + max(half.value, 0.0) + half.bound)


def _kind(kind: str | None, within: float) -> str | None:
    """Returns the kind of an error bar with a part that is due to bins."""
    return FROM_NOISE_AND_BINS if kind == FROM_NOISE and within > 0 else kind


def _level_ends(attribute: ordered.IntegerAttribute | ordered.NumericAttribute) -> Ends:
    """Returns the least and the largest value of each level."""
    if isinstance(attribute, ordered.IntegerAttribute):
        values = np.arange(attribute.minimum, attribute.maximum + 1)
        return values, values
    edges = np.array(attribute.edges, np.float64)
    # For whole numbers, the largest value below an edge is the edge minus one.
    return attribute.whole_ends or (edges[:-1], edges[1:])


def _of(attribute: Attribute) -> str:
    """Returns which values of a column count, if a declared or found range leaves out others."""
    assert isinstance(attribute, ordered.IntegerAttribute | ordered.NumericAttribute)
    low, high = _level_ends(attribute)
    ends = f"[{low[0]:.15g}, {high[-1]:.15g}]"
    inside = f"values within {ends}" if attribute.other else ""
    return f"values clipped to {ends}" if attribute.clip else inside


def _reached(
    ends: Ends, below: Sequence[Estimate], share: float, *, is_clipped: bool
) -> tuple[float, float, float]:
    """Returns the value at a share of the records, and both ends of its error bar.

    ``below``: the shares of records up to each level, whose ends are ``ends``.
    """
    shares, margins = np.array([(answer.value, answer.margin or 0.0) for answer in below]).T
    if np.isnan(shares).any():  # there are no records
        return math.nan, math.nan, math.nan
    low, high = ends
    last = len(below) - 1
    # The bar has each level that contains the share, if all shares may move by their margins.
    place, first = (
        min(int(np.argmax(np.append(moved >= share, True))), last)
        for moved in (shares, shares + margins)
    )
    is_below = shares - margins < (share or math.ulp(0.0))
    final = min(int(np.flatnonzero(np.append(True, is_below))[-1]), last)
    if share in (0, 1):  # the bar of an end reaches the end of the column: noise hides one record
        place, first, final = (first, first, last) if share else (final, 0, final)
    before = float(shares[:place].max(initial=0.0))
    inside = float(shares[place]) - before
    part = min(max((share - before) / inside, 0.0), 1.0) if inside > 0 else 1.0
    part = share if share in (0, 1) else part
    return (
        float(low[place] + part * (high[place] - low[place])),
        -math.inf if is_clipped and first == 0 else float(low[first]),
        math.inf if is_clipped and final == last else float(high[final]),
    )
