"""What `beam-dp describe`, `report` and `answer` show of windows and horizons."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from beam_dp.domain.horizon import Blocks, span_text
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.flags.flag import FlagError, refused
from beam_dp.flags.questions import refuse_others
from beam_dp.privacy.noise.bound import FAILURE_PROBABILITY, noise_bound
from beam_dp.queries.workload import Workload
from beam_dp.releases.error_bars import FROM_NOISE, Estimate
from beam_dp.releases.synthetic_database.measured_tables import query_variance
from beam_dp.releases.synthetic_database.noisy_tables import NoisyTables
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.windows.release import HorizonRelease, WindowTables
from beam_dp.views.cells import (
    Answers,
    Asked,
    Cell,
    Groups,
    Truth,
    cells_of,
    groups_of,
    summed_groups,
)
from beam_dp.views.marginals import (
    MAX_PAIRS,
    Marginals,
    bar_words,
    figure,
    map_figures,
    pictures,
)
from beam_dp.views.page import Told, noise_words, noisy_number_fact
from beam_dp.views.pictures import MAX_COLUMNS, MAX_ROWS, legend, vertical_bars
from beam_dp.views.synthetic_database import answer_tables, workload_text
from beam_dp.views.terminal import (
    below_each_other,
    counted,
    facts_tables,
    moment,
    noise_table,
    plain_table,
    plain_text,
    promise_facts,
    short_value,
)

if TYPE_CHECKING:
    from rich.console import RenderableType


_SHOWN_MARGINALS = 20
_SHOWN_RUNS = 20  # the number of runs in a table
_WRITTEN_RUNS = 6  # the number of runs in a line
_MAX_WINDOWS = 96
_moment = functools.partial(moment, form="%Y-%m-%d %H:%M")


def describe(release: WindowTables | HorizonRelease) -> RenderableType:
    """Returns tables with the guarantee and the errors of a window, or of a horizon's windows."""
    if isinstance(release, HorizonRelease):
        return _describe_horizon(release)
    number, error = release.noisy_number()
    facts = {
        release.level: f"{release.number:,}, {moment(release.start)} to {moment(release.end)}",
        **promise_facts(release.guarantee),
        "records": f"{number:,.1f} (a noisy count, standard error {error:,.1f})",
        "workload": workload_text(release.workload),
        "horizon": release.horizon_id,
        "draw": release.draw_id,
    }
    parts = [
        *facts_tables({"release": facts}),
        errors_table(release),
        noise_table([table.to_json() for table in release.measured]),
        *facts_tables({"parameter": release.plan, "made with": release.versions}),
    ]
    return below_each_other(parts)


def errors_table(release: WindowTables) -> RenderableType:
    """Returns the errors of a window's marginals; all windows of a horizon have these errors."""
    errors = [
        (", ".join(names), short_value(math.sqrt(release.variance(names))))
        for names in release.workload.marginals[:_SHOWN_MARGINALS]
    ]
    if len(release.workload) > len(errors):
        errors.append((f"and {len(release.workload) - len(errors):,} more", ""))
    return plain_table(("marginal", "standard error of a count (records)"), errors, (1,))


def _describe_horizon(release: HorizonRelease) -> RenderableType:
    """Returns tables with a horizon's guarantee, released windows, and errors of one window."""
    horizon, card = release.horizon, release.card
    spans = runs(release.released)
    headline = f"{len(release.windows):,} of {horizon.num_windows:,} windows are released."
    parts = [plain_text(headline, "bold"), *facts_tables({"horizon": _facts(release)})]
    if spans:
        rows = [(shown_runs(run), *map(moment, horizon.times(run))) for run in spans[:_SHOWN_RUNS]]
        if len(spans) > _SHOWN_RUNS:
            rows.append((f"and {counted(len(spans) - _SHOWN_RUNS, 'more run')}", "", ""))
        parts.append(plain_table(("released windows", "from", "to"), rows))
        first = release.windows[spans[0].start]
        if isinstance(first, WindowTables):
            parts.append(errors_table(first))
    return below_each_other([*parts, *facts_tables({n: card[n] for n in ("source", "plan")})])


def _facts(release: HorizonRelease) -> dict[str, str]:
    horizon, card = release.horizon, release.card
    ends = f"{moment(horizon.start)} to {moment(horizon.end)}"
    facts = {
        **promise_facts(release.guarantee),
        "promise": card["promise"],
        "windows": f"{horizon.num_windows:,} of {horizon.window_text}, {ends}; each waits"
        f" {span_text(horizon.grace)} for late records",
        "workload": workload_text(release.workload),
        "source": "can be read again" if card["replayable"] else "can't be read again",
        "horizon": release.horizon_id,
    }
    if release.block is not None:
        total = len(Blocks(horizon.num_windows, release.block))
        facts["blocks"] = (
            f"{len(release.blocks):,} of {total:,} released, {release.block:,} windows"
        )
    return facts


def runs(numbers: Iterable[int]) -> list[range]:
    """Returns ascending numbers as ranges of consecutive numbers."""
    spans: list[range] = []
    for number in numbers:
        if spans and spans[-1].stop == number:
            spans[-1] = range(spans[-1].start, number + 1)
        else:
            spans.append(range(number, number + 1))
    return spans


def shown_runs(numbers: Iterable[int]) -> str:
    """Returns ascending numbers as text with at most six ranges, such as ``0 to 2, 7``."""
    spans = runs(numbers)
    texts = [f"{run.start}" if len(run) == 1 else f"{run.start} to {run[-1]}" for run in spans]
    more = [f"{len(texts) - _WRITTEN_RUNS:,} more runs"] if len(texts) > _WRITTEN_RUNS else []
    return ", ".join([*texts[:_WRITTEN_RUNS], *more])


def report(release: WindowTables | HorizonRelease, truth: Truth | None) -> Told:
    """Returns the sections about the marginals of a window, or about a horizon, and the noise."""
    if isinstance(release, HorizonRelease):
        return _report_horizon(release, truth)
    marginals = _marginals(release.workload, release.estimate, None)
    facts = {
        **noisy_number_fact(release),
        release.level.capitalize(): f"{release.number:,}, {_span(release.start, release.end)}",
    }
    noise = noise_words(release.noise)
    what = f"Tables of one {release.level} of a stream"
    return Told(what, *marginals.headlines(), facts, marginals.sections(), noise)


def _marginals(workload: Workload, tables: NoisyTables, truth: Truth | None) -> Marginals:
    sets = [workload.domain.axes(names) for names in workload]
    singles = sorted({axis for axes in sets for axis in axes})
    pairs = dict.fromkeys(pair for axes in sets for pair in itertools.combinations(axes, 2))
    return Marginals(TableAnswers(tables), singles, list(pairs)[:MAX_PAIRS], truth, sets)


def _span(start: int, end: int) -> str:
    return f"{_moment(start)} to {_moment(end)}"


def _report_horizon(release: HorizonRelease, truth: Truth | None) -> Told:
    """Returns the sections about the windows over time, and about many windows together."""
    numbers = release.released
    step = -(-len(numbers) // MAX_COLUMNS) or 1
    shown = numbers[::step]
    title = f"{len(numbers):,} of {release.horizon.num_windows:,} windows are released"
    facts = {
        "Windows": f"{title}, each of {release.horizon.window_text}",
    }
    what = "Windows of a stream"
    if not shown:
        return Told(what, "No window is released yet", "", facts, {}, "")
    truths = [None if truth is None else truth.among(range(number, number + 1)) for number in shown]
    cells = [_window_cell(release, *pair) for pair in zip(shown, truths, strict=True)]
    words = bar_words(cells) + (f" Every {step}th window is drawn." if step > 1 else "")
    line = vertical_bars("Records by window", cells, is_line=True)
    over_time = legend(has_truth=truth is not None)
    over_time += figure("Records of each window", words, [line], cells, "wide")
    last = release.windows[numbers[-1]]
    if not isinstance(last, WindowTables):
        return Told(what, title, "", facts, {"Over time": over_time}, "")
    together = runs(numbers)[-1][-_MAX_WINDOWS:]
    tables = release.summed(slice(together.start, together.stop))
    assert isinstance(tables, NoisyTables)
    truth = None if truth is None else truth.among(together)
    marginals = _marginals(release.workload, tables, truth)
    windows = [release.windows[number] for number in shown]
    answers = [TableAnswers(one.estimate) for one in windows if isinstance(one, WindowTables)]
    each_window = list(zip(answers, truths, strict=True))
    times = [cell.labels[0] for cell in cells]
    maps = [_over_time(marginals.answers, each_window, times, axis) for axis in marginals.singles]
    span = _span(*release.horizon.times(together))
    facts["These pictures"] = f"{counted(len(together), 'window')} together, {span}"
    sections = {"Over time": over_time + pictures(maps), **marginals.sections()}
    return Told(what, *marginals.headlines(), facts, sections, noise_words(last.noise))


def _over_time(
    together: Answers,
    windows: Sequence[tuple[Answers, Truth | None]],
    times: Sequence[str],
    axis: int,
) -> str:
    """Returns a heat map of an attribute's levels by window, next to that of the truth if known."""
    name = together.domain.names[axis]
    groups = groups_of(together, axis, MAX_ROWS)
    asked: list[Asked] = [((axis,), (groups,))]
    rows = [cells_of(answers, asked, truth)[0] for answers, truth in windows]
    cells = [
        dataclasses.replace(cell, labels=(cell.labels[0], time))
        for column in zip(*rows, strict=True)
        for time, cell in zip(times, column, strict=True)
    ]
    labels = [group.label for group in groups], times
    drawn = map_figures(f"{name[:80]} over time", (name, "time"), labels, cells)
    return figure(name, bar_words(cells), drawn, kind="" if cells[0].truth is None else "side")


def _window_cell(release: HorizonRelease, place: int, truth: Truth | None) -> Cell:
    window = release.windows[place]
    label = (_moment(release.horizon.times(range(place, place + 1))[0]),)
    true = None if truth is None else truth.num_records
    noisy = window.noisy_number()
    if noisy is None:
        assert isinstance(window, SyntheticDatabase)
        reason = "the release states none"
        return Cell(label, Estimate(float(window.represented), reason=reason), true)
    value, error = noisy
    smallest = window.estimate.laplace_variance if isinstance(window, WindowTables) else None
    margin = noise_bound(error**2, 1, smallest, FAILURE_PROBABILITY)
    kind = FROM_NOISE if isinstance(window, WindowTables) else "approximate"
    return Cell(label, Estimate(value, error, margin, kind), true)


@dataclasses.dataclass(frozen=True, eq=False)
class TableAnswers:
    """Answers from the unbiased tables of windows."""

    tables: NoisyTables

    @property
    def domain(self) -> Domain:
        """See ``Answers``."""
        return self.tables.domain

    def of(self, tables: Sequence[Asked]) -> list[list[Estimate]]:
        """See ``Answers``."""
        return [self._table(*asked) for asked in tables]

    def _table(self, axes: tuple[int, ...], groups: Groups) -> list[Estimate]:
        names = tuple(self.domain.names[axis] for axis in axes)
        (answer,) = self.tables.answer(Workload(self.domain, (names,)))
        values = summed_groups(answer.values, groups)
        sizes = itertools.product(*([len(level.codes) for level in group] for group in groups))
        errors = map(self._error, itertools.repeat(axes), sizes)
        return [
            Estimate(value, error, margin, FROM_NOISE)
            for value, (error, margin) in zip(values.ravel().tolist(), errors, strict=True)
        ]

    def _error(self, axes: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[float, float]:
        variance = query_variance(self.domain, self.tables.variances, axes, sizes)
        return math.sqrt(variance), noise_bound(
            variance, 1, self.tables.laplace_variance, FAILURE_PROBABILITY
        )


_CONDITION = "must be one window, such as 7, or some, such as 10:34, :24 or -24:"
_NUMBER = "-?[0-9]{1,7}"


def answer(release: WindowTables | HorizonRelease, options: argparse.Namespace) -> None:
    """Prints the answers from one window, or from the sum of some, that a command line asks for."""
    if isinstance(release, WindowTables):
        refuse_others(options, ())
        answer_tables(release, options)
        return
    refuse_others(options, ("windows",))
    if options.windows is None:
        raise FlagError(f"--windows is required: {_CONDITION}")
    windows = windows_of(options.windows, release.horizon.num_windows)
    missing = [
        window for window in range(windows.start, windows.stop) if window not in release.windows
    ]
    if missing:
        condition = f"must be released; not released yet: {shown_runs(missing)}"
        raise refused("windows", options.windows, condition)
    try:
        estimate = release.summed(windows)
    except InputError as error:
        if error.name != "windows":
            raise
        raise refused("windows", options.windows, error.condition) from None
    if not options.json:
        asked = range(windows.start, windows.stop)
        between = " to ".join(map(moment, release.horizon.times(asked)))
        print(f"windows {shown_runs(asked)}: {between}")
    answer_tables(estimate, options)


def windows_of(text: str, num_windows: int) -> slice:
    """Returns the windows for a string such as ``7``, ``10:34``, ``:24`` or ``-24:``, as in Python.

    Unlike in Python, slices that are empty or extend beyond the horizon raise a FlagError.
    """
    match = re.fullmatch(rf"({_NUMBER})|({_NUMBER})?:({_NUMBER})?", text)
    if match is None:
        raise refused("windows", text, _CONDITION)
    one, first_text, stop_text = match.groups()
    first = _from_start(one or first_text or "0", num_windows)
    stop = first + 1 if one else num_windows
    if stop_text:
        stop = _from_start(stop_text, num_windows)
    if not 0 <= first < stop <= num_windows:
        condition = f"must be some of the {num_windows:,} windows of the horizon, from 0 on"
        raise refused("windows", text, condition)
    return slice(first, stop)


def _from_start(text: str, num_windows: int) -> int:
    """Returns a window number; negative numbers count from the end of the horizon."""
    number = int(text)
    return number + num_windows if number < 0 else number
