"""Which sections the report of each kind of release has, beside those of all."""

from __future__ import annotations

import collections
import datetime
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from beam_dp.noise.bound import FAILURE_PROBABILITY, noise_bound
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.releases.error_bars import ErrorKind, Estimate
from beam_dp.releases.intervals.release import IntervalRelease
from beam_dp.releases.sketches.release import SparseRelease
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.windows.horizon import HorizonRelease
from beam_dp.releases.windows.window import WindowTables
from beam_dp.reports.about import AnyRelease, noise_section, noisy_number_fact
from beam_dp.reports.cells import (
    Cell,
    Counts,
    IntervalAnswers,
    RecordAnswers,
    TableAnswers,
    cells_of,
    groups_of,
)
from beam_dp.reports.marginals import Marginals, bar_words, figure, pairs_of
from beam_dp.reports.markup import number, paragraph, section, table, text
from beam_dp.reports.pictures import MAX_STANDING, legend, standing

_MAX_PAIRS = 400
_MAX_WINDOWS = 96
_SHOWN_ANSWERS = 40


class Told(NamedTuple):
    """What a report tells of one kind of release.

    Args:
        title: what it is.
        facts: beside the promise.
        sections: with what it holds; empty ones are left out.
    """

    title: str
    facts: Mapping[str, str]
    sections: list[str]


def told_of(release: AnyRelease, truth: Counts | None) -> Told:
    """Returns what a report tells of a release of any kind.

    Args:
        release: to tell of.
        truth: of the records, where their owner compares; for kinds in ``COMPARED``.
    """
    return _KINDS[type(release)](release, truth)


def _synthetic(release: SyntheticDatabase, truth: Counts | None) -> Told:
    domain = release.domain
    sets = [domain.axes(names) for names in release.workload]
    pairs = pairs_of(sets, domain.num_attributes, _MAX_PAIRS)
    marginals = Marginals(RecordAnswers(release), range(domain.num_attributes), pairs, truth)
    found = noisy_number_fact(release) or {"Records": f"{release.represented:,}, a public number"}
    return Told(
        "Synthetic database",
        found,
        [
            _measured(release),
            *marginals.sections(),
            noise_section(release.noise, *_fit_words(release)),
        ],
    )


def _measured(release: SyntheticDatabase) -> str:
    """What was measured, by the number of attributes of a table."""
    held = release.measurements
    domain, workload = release.domain, release.workload
    words = [
        f"It was made to answer {len(workload):,} marginals of {domain.num_attributes:,}"
        f" attributes, with {workload.num_cells():,} cells."
    ]
    if release.queries:
        words.append(f"It was made to answer {len(release.queries):,} linear queries.")
    if held is None:
        words.append("The card does not keep noisy tables, so that few answers have error bars.")
        return section("What was measured", *(paragraph(text(each)) for each in words))
    fixed = (
        "What was measured was fixed before any record was read: error bars of sums of measured"
        " tables are exact."
        if held.are_fixed
        else "Noise had a say in what was measured: error bars are approximate."
    )
    groups: dict[tuple[int, str], list[float]] = collections.defaultdict(list)
    for each in held.described:
        groups[len(each.names), each.kind].append(math.sqrt(each.variance))
    rows = []
    for (ways, kind), errors in sorted(groups.items()):
        ends = " to ".join(dict.fromkeys(f"{each:.3g}" for each in (min(errors), max(errors))))
        what = "the number of records" if not ways else f"{ways}-way {kind}s"
        rows.append((what, f"{len(errors):,}", ends))
    header = ("measured", "tables", "noise of a cell")
    return section(
        "What was measured",
        *(paragraph(text(each)) for each in (*words, fixed)),
        table(
            "Noisy tables, and the standard deviation of their noise in records",
            header,
            rows,
            (1, 2),
        ),
    )


def _fit_words(release: SyntheticDatabase) -> list[str]:
    if release.within_bins != "uniform":
        return []
    return ["Values within bins were drawn uniformly: what is known of a value is its bin."]


def _intervals(release: IntervalRelease, truth: Counts | None) -> Told:
    answers = IntervalAnswers(release)
    groups = groups_of(answers, 0, MAX_STANDING)
    (cells,) = cells_of(answers, [((0,), (groups,))], truth)
    name, (strategy, distribution) = release.attribute.name, release.choice
    picture = standing(f"Records by {name[:80]}", cells)
    note = "" if len(groups) == release.num_leaves else f"{release.num_leaves:,} levels, grouped. "
    noise = {
        "measured": strategy,
        "distribution": distribution,
        "scale": release.scale,
        "grid": release.grid,
        "standard_deviation": math.sqrt(release.noise_variance) / release.grid,
    }
    error = math.sqrt(release.mean_squared_error)
    num_intervals = release.num_leaves * (release.num_leaves + 1) // 2
    drawn = section(
        "Counts",
        legend(has_truth=truth is not None, is_map=False),
        figure(name, note + bar_words(cells), picture, cells),
        paragraph(
            text(
                f"All {num_intervals:,} intervals can be asked: the root of their mean squared"
                f" error is {number(error)} records."
            )
        ),
    )
    noisy = Marginals(answers, [0], [], truth).sections()[2:]
    return Told(
        "Interval counts", noisy_number_fact(release), [drawn, *noisy, noise_section([noise])]
    )


def _window(release: WindowTables, _: Counts | None) -> Told:
    span = f"{_moment(release.start)} to {_moment(release.end)}"
    sections = _window_sections(release)
    facts = {
        **noisy_number_fact(release),
        release.level.capitalize(): f"{release.number:,}, {span}",
    }
    noise = noise_section([each.to_json() for each in release.measured])
    return Told(f"Tables of a {release.level}", facts, [*sections, noise])


def _window_sections(release: WindowTables) -> list[str]:
    held = [release.domain.axes(names) for names in release.workload]
    singles = sorted({axis for axes in held for axis in axes})
    pairs = dict.fromkeys(pair for axes in held for pair in itertools.combinations(axes, 2))
    shown = list(pairs)[:_MAX_PAIRS]
    return Marginals(TableAnswers(release.estimate), singles, shown).sections()


def _horizon(release: HorizonRelease, _: Counts | None) -> Told:
    numbers = release.released
    step = -(-len(numbers) // _MAX_WINDOWS) or 1
    shown = numbers[::step]
    cells = [_window_cell(release, each) for each in shown]
    what = f"{len(numbers):,} of {release.horizon.num_windows:,} windows are released"
    told = {"Windows": f"{what}, each of {release.horizon.window_text}"}
    if not cells:
        return Told(
            "Windows of a stream", told, [section("Over time", paragraph(text(f"{what}.")))]
        )
    words = bar_words(cells) + (f" Every {step}th window is drawn." if step > 1 else "")
    picture = standing("Records by window", cells, is_line=True)
    drawn = section(
        "Over time",
        legend(has_truth=False, is_map=False),
        figure("Records of each window", words, picture, cells),
    )
    sections, last = [drawn], release.windows[numbers[-1]]
    if isinstance(last, WindowTables):
        span = f"{_moment(last.start)} to {_moment(last.end)}"
        sections.append(section("The last window", paragraph(text(f"What follows is of {span}."))))
        sections += _window(last, None).sections
    return Told("Windows of a stream", told, sections)


def _window_cell(release: HorizonRelease, place: int) -> Cell:
    window = release.windows[place]
    label = (_moment(release.horizon.times(range(place, place + 1))[0]),)
    found = window.noisy_number()
    if found is None:
        assert isinstance(window, SyntheticDatabase)
        reason = "the release states none"
        return Cell(label, Estimate(float(window.represented), reason=reason))
    value, error = found
    smallest = window.estimate.laplace_variance if isinstance(window, WindowTables) else None
    margin = noise_bound(error**2, 1, smallest, FAILURE_PROBABILITY)
    kind: ErrorKind = "exact" if isinstance(window, WindowTables) else "approximate"
    return Cell(label, Estimate(value, error, margin, kind))


def _sparse(release: SparseRelease, _: Counts | None) -> Told:
    noise: list[dict[str, Any]] = []
    sketch, histogram = release.sketch, release.histogram
    if sketch is not None:
        noise.append(
            {
                "measured": f"sketch of {len(sketch.cells):,} cells",
                "distribution": sketch.distribution,
                "scale": sketch.scale,
            }
        )
    if histogram is not None:
        noise.append(
            {
                "measured": f"counts of keys, released from {histogram.threshold:,}",
                "distribution": "discrete_laplace",
                "scale": histogram.scale,
            }
        )
    words = (
        f"It answers sums over up to {release.max_sparsity:,} keys of a huge universe, with values"
        " from 0 to 1. Keys are hashed: nobody can list them from the release."
    )
    held = (
        "" if histogram is None else f"{len(histogram.elements):,} keys have a count of their own."
    )
    parts = [paragraph(text(each)) for each in (words, held) if each]
    return Told("Sparse queries", {}, [section("What it answers", *parts), noise_section(noise)])


def _answers(release: AnswersRelease, _: Counts | None) -> Told:
    rows = [row for row in release.rows if row.get("error") is None]
    refused = len(release.rows) - len(rows)
    routes = collections.Counter(str(row.get("route")) for row in rows)
    words = f"Queries answered: {len(rows):,}; refused: {refused:,}."
    shown = [
        (
            str(row.get("query", "")),
            *(_cell_value(row.get(name)) for name in ("value", "standard_error", "bound")),
        )
        for row in rows[:_SHOWN_ANSWERS]
    ]
    header = ("query", "records", "standard error", "within")
    caption = f"The first {len(shown):,} answers"
    plan = release.card.get("plan")
    held = plan if isinstance(plan, Mapping) else {}
    noise = [{key: held[key] for key in ("distribution", "scale", "grid") if key in held}]
    return Told(
        "Answers",
        {"Answers": f"{len(rows):,}"},
        [
            section(
                "Answers",
                paragraph(text(words)),
                table("Answers by route", ("route", "answers"), routes.most_common(), (1,)),
                table(caption, header, shown, (1, 2, 3)) if shown else "",
            ),
            noise_section([each for each in noise if each]),
        ],
    )


def _cell_value(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, int | float) else "not stated"


def _moment(seconds: int) -> str:
    """Returns a time in UTC, or the seconds since 1970 where no calendar has it."""
    try:
        time = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (OverflowError, OSError, ValueError):
        return str(seconds)
    return time.strftime("%Y-%m-%d %H:%M")


_KINDS: dict[type[AnyRelease], Callable[[Any, Counts | None], Told]] = {
    SyntheticDatabase: _synthetic,
    IntervalRelease: _intervals,
    SparseRelease: _sparse,
    WindowTables: _window,
    AnswersRelease: _answers,
    HorizonRelease: _horizon,
}
