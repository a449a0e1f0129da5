"""The tables and sections that `beam-dp describe` and `beam-dp report` show for interval counts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.ordered import OrderedAttribute
from beam_dp.domain.universe import Domain
from beam_dp.noise.bound import FAILURE_PROBABILITY
from beam_dp.releases.error_bars import Estimate
from beam_dp.releases.intervals.release import IntervalRelease
from beam_dp.reports import terminal
from beam_dp.reports.cells import Asked, Counts, Group, cells_of, groups_of
from beam_dp.reports.marginals import Marginals, bar_words, figure
from beam_dp.reports.markup import MAX_STANDING, legend, paragraph, section, standing, text
from beam_dp.reports.page import Told, noise_section, noisy_number_fact

if TYPE_CHECKING:
    from rich.console import RenderableType


def describe_intervals(release: IntervalRelease) -> RenderableType:
    """Returns tables of the guarantee, the attribute, the error and the noise."""
    attribute = release.attribute
    num_leaves = release.num_leaves
    facts = {
        "counts": f"all {num_leaves * (num_leaves + 1) // 2:,} intervals of {attribute.name}",
        "strategy": release.choice[0],
        **terminal.promise_facts(release.guarantee),
        "levels": f"{num_leaves:,}, from {attribute.label(0)} to {attribute.label(num_leaves - 1)}",
        "error": f"{math.sqrt(release.mean_squared_error):,.1f} records,"
        " the root of the mean squared error over all intervals",
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
    return terminal.below_each_other(terminal.facts_tables(tables))


def report_intervals(release: IntervalRelease, truth: Counts | None) -> Told:
    """Returns the sections about the counts and about the noise."""
    answers = IntervalAnswers(release)
    groups = groups_of(answers, 0, MAX_STANDING)
    (cells,) = cells_of(answers, [((0,), (groups,))], truth)
    name = release.attribute.name
    picture = standing(f"Records by {name[:80]}", cells)
    note = "" if len(groups) == release.num_leaves else f"{release.num_leaves:,} levels, grouped. "
    error = math.sqrt(release.mean_squared_error)
    num_intervals = release.num_leaves * (release.num_leaves + 1) // 2
    drawn = section(
        "Counts",
        legend(has_truth=truth is not None, is_map=False),
        figure(name, note + bar_words(cells), picture, cells),
        paragraph(
            text(
                f"All {num_intervals:,} intervals can be asked: the root of their mean squared"
                f" error is {terminal.short(error)} records."
            )
        ),
    )
    noisy = Marginals(answers, [0], [], truth).sections()[2:]
    return Told(
        "Interval counts", noisy_number_fact(release), [drawn, *noisy, noise_section(release.noise)]
    )


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
        return [self._groups(group) for _, (group,) in tables]

    def values(self, pairs: Sequence[tuple[int, ...]]) -> list[NDArray[np.float64]]:
        """See ``Answers``; interval counts have one attribute and, therefore, no pairs."""
        return []

    def _groups(self, groups: Sequence[Group]) -> list[Estimate]:
        ends = np.array([(each.codes[0], each.codes[-1]) for each in groups])
        found = self.release.answer(ends[:, 0], ends[:, 1], failure_probability=FAILURE_PROBABILITY)
        triples = zip(
            found.values.tolist(),
            found.standard_errors.tolist(),
            found.bounds.tolist(),
            strict=True,
        )
        return [Estimate(value, error, margin, "exact") for value, error, margin in triples]
