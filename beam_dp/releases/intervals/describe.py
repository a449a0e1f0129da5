"""The tables and sections that `beam-dp describe` and `beam-dp report` show for interval counts."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.ordered import OrderedAttribute
from beam_dp.domain.universe import Domain
from beam_dp.privacy.noise.bound import FAILURE_PROBABILITY
from beam_dp.releases.error_bars import FROM_NOISE, Estimate
from beam_dp.releases.intervals.release import IntervalRelease
from beam_dp.reports import terminal
from beam_dp.reports.cells import Asked, Cell, Truth, groups_of
from beam_dp.reports.marginals import RULE, Marginals, bar_words, figure
from beam_dp.reports.page import Told, noise_words, noisy_number_fact
from beam_dp.reports.pictures import MAX_COLUMNS, vertical_bars

if TYPE_CHECKING:
    from rich.console import RenderableType


def describe_intervals(release: IntervalRelease) -> RenderableType:
    """Returns tables of the guarantee, the attribute, the error and the noise."""
    attribute = release.attribute
    num_leaves = release.num_leaves
    headline = (
        f"Counts of all {num_leaves * (num_leaves + 1) // 2:,} intervals of {attribute.name}, with"
        f" an error of {math.sqrt(release.mean_squared_error):,.1f} records (root mean square)."
    )
    facts = {
        "strategy": release.choice[0],
        **terminal.promise_facts(release.guarantee),
        "levels": f"{num_leaves:,}, from {attribute.label(0)} to {attribute.label(num_leaves - 1)}",
        "noise": f"{terminal.noise_text(release.choice[1])},"
        f" scale {release.scale / release.grid:.4g}",
        **terminal.left_out_facts(release.left_out),
        "draw": release.draw_id,
    }
    levels = {"other": "other", "nullable": "null"}
    left_out = [name for field, name in levels.items() if getattr(attribute, field)]
    if left_out:
        facts["not counted"] = f"records whose {attribute.name} is {' and '.join(left_out)}"
    tables = {"release": facts, "parameter": release.plan, "made with": release.versions}
    return terminal.below_each_other(
        [terminal.plain_text(headline, "bold"), *terminal.facts_tables(tables)]
    )


def report_intervals(release: IntervalRelease, truth: Truth | None) -> Told:
    """Returns the sections about the counts, also up to each value, and the noise."""
    answers = IntervalAnswers(release)
    marginals = Marginals(answers, [0], [], truth)
    *others, noisy = marginals.sections().items()
    found = {
        **noisy_number_fact(release),
        "Error of an interval": f"{terminal.short(math.sqrt(release.mean_squared_error))} records"
        " (root mean square)",
    }
    sections = dict([*others, ("Up to each value", _up_to(answers, truth)), noisy])
    what = f"Counts of all intervals of {release.attribute.name[:60]}"
    return Told(what, marginals.headline(), RULE, found, sections, noise_words(release.noise))


def _up_to(answers: IntervalAnswers, truth: Truth | None) -> str:
    """Returns a picture of the numbers of records up to each value, and the quartiles."""
    groups = groups_of(answers, 0, MAX_COLUMNS)
    lasts = [int(each.codes[-1]) for each in groups]
    true: Sequence[int | None] = [None] * len(groups)
    if truth is not None:
        true = list(itertools.accumulate(truth.of((0,), (groups,))))
    labels = [(answers.release.attribute.label(last),) for last in lasts]
    found = answers.between([0] * len(lasts), lasts)
    cells = [Cell(*each) for each in zip(labels, found, true, strict=True)]
    quartiles = answers.release.quantiles([0.25, 0.5, 0.75]).tolist()
    low, middle, high = map(answers.release.attribute.label, quartiles)
    words = f"Quartiles: {low}, {middle} (the median) and {high}. {bar_words(cells)}"
    picture = vertical_bars("Records up to each value", cells, is_line=True)
    return figure("Records up to each value", words, [picture], cells, "wide")


@dataclasses.dataclass(frozen=True, eq=False)
class IntervalAnswers:
    """Answers from interval counts, for groups of neighbouring levels."""

    release: IntervalRelease

    @cached_property
    def domain(self) -> Domain:
        """The domain without the levels that intervals leave out; see ``Answers``."""
        assert isinstance(self.release.attribute, OrderedAttribute)
        return Domain((self.release.attribute.regular(),))

    def of(self, tables: Sequence[Asked]) -> list[list[Estimate]]:
        """See ``Answers``."""
        ends = [
            ([each.codes[0] for each in own], [each.codes[-1] for each in own])
            for _, (own,) in tables
        ]
        return [self.between(*each) for each in ends]

    def values(self, pairs: Sequence[tuple[int, ...]]) -> list[NDArray[np.float64]]:
        """See ``Answers``; interval counts have one attribute and, therefore, no pairs."""
        return []

    def between(self, firsts: Sequence[int], lasts: Sequence[int]) -> list[Estimate]:
        """Returns the numbers of records from first to last codes."""
        found = self.release.answer(firsts, lasts, failure_probability=FAILURE_PROBABILITY)
        columns = found.values, found.standard_errors, found.bounds
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [Estimate(value, error, bar, FROM_NOISE) for value, error, bar in rows]
