"""The report of a synthetic database."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.queries.vector_query import VectorQuery
from beam_dp.releases.error_bars import Estimate
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.reports.about import Told, noise_section, noisy_number_fact
from beam_dp.reports.cells import Asked, Counts, Groups, indicators, values_of
from beam_dp.reports.marginals import MAX_PAIRS, Marginals, pairs_of
from beam_dp.reports.markup import paragraph, section, table, text


def report_synthetic_database(release: SyntheticDatabase, truth: Counts | None) -> Told:
    """Returns the sections about what was measured, about marginals and about the noise."""
    domain = release.domain
    sets = [domain.axes(names) for names in release.workload]
    pairs = pairs_of(sets, domain.num_attributes, MAX_PAIRS)
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


@dataclasses.dataclass(frozen=True, eq=False)
class RecordAnswers:
    """Answers of a synthetic database."""

    release: SyntheticDatabase

    @property
    def domain(self) -> Domain:
        """See ``Answers``."""
        return self.release.domain

    def of(self, tables: Sequence[Asked]) -> list[list[Estimate]]:
        """See ``Answers``."""
        queries = [self._queries(*asked) for asked in tables]
        found = iter(self.release.estimates.of(list(itertools.chain.from_iterable(queries))))
        return [list(itertools.islice(found, len(each))) for each in queries]

    def _queries(self, axes: tuple[int, ...], groups: Groups) -> list[VectorQuery]:
        vectors = [
            indicators(group, self.domain.shape[axis])
            for axis, group in zip(axes, groups, strict=True)
        ]
        return [
            VectorQuery.of(dict(zip(axes, each, strict=True)))
            for each in itertools.product(*vectors)
        ]

    def values(self, pairs: Sequence[tuple[int, ...]]) -> list[NDArray[np.float64]]:
        """See ``Answers``."""
        return values_of(self.domain, self.release.answer, pairs)
