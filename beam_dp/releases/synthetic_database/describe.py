"""What `beam-dp describe` shows of a synthetic database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beam_dp.domain.attributes import Attribute
from beam_dp.domain.ordered import BinnedAttribute
from beam_dp.errors import magnitude
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.reports.terminal import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

from beam_dp.reports.terminal import (
    below_each_other,
    facts_tables,
    first_lines,
    left_out_facts,
    left_out_table,
    noise_table,
    plain_table,
    promise_facts,
    short_value,
)

_SHOWN_MARGINALS = 20


_SHOWN_LABELS = 6


_LABEL_LETTERS = 44  # of all that are shown of an attribute: its row fits 80 columns


def describe_synthetic_database(release: SyntheticDatabase) -> RenderableType:
    """Returns what a release promises and how wrong it can be, for ``rich`` to print.

    Returns:
        Tables of the guarantee, the attributes, the errors and the noise.

    Example:
        >>> rich.print(describe_synthetic_database(read_release("out/visits")))  # doctest: +SKIP
    """
    origin = "public" if release.num_records_is_public else "a noisy count"
    error = release.errors.get((), {}).get("standard_error")
    if error is not None and not release.num_records_is_public:
        origin += f", standard error {error:,.1f}"
    cells = magnitude(release.domain.num_cells)
    facts = {
        "mechanism": release.mechanism,
        **promise_facts(release.guarantee),
        "records": f"{release.num_records:,} ({origin})",
        **_small_facts(release),
        **_bins_facts(release),
        **left_out_facts(release.left_out),
        "cells": f"{cells} in the domain, {len(release.counts):,} released",
        "workload": workload_text(release.workload),
        "draw": release.draw_id,
    }
    attributes = map(_attribute_row, release.domain)
    parts: list[RenderableType] = [
        *facts_tables({"release": facts}),
        plain_table(("attribute", "type", "codes", "levels"), attributes),
    ]
    if release.domain.impossible:
        parts.append(first_lines("impossible", release.domain.to_json()["impossible"]))
    if release.left_out is not None:
        parts.append(left_out_table(release.left_out))
    parts.append(_errors(release))
    if release.noise:
        parts.append(noise_table(release.noise))
    rest = {"parameter": release.plan, "fit": release.fit, "made with": release.versions}
    return below_each_other([*parts, *facts_tables(rest)])


def workload_text(workload: Workload) -> str:
    """Returns how large a workload is, in a few words."""
    return f"{counted(len(workload), 'marginal')}, {counted(workload.num_cells(), 'cell')}"


def _small_facts(release: SyntheticDatabase) -> dict[str, str]:
    """What is told only of records that stand for more of them."""
    facts = {}
    if release.represented != release.num_records:
        facts["stand for"] = f"{release.represented:,} records: answers are scaled to them"
    if release.queries:
        told = counted(len(release.queries), "linear query", "linear queries")
        bound = release.query_error.get("bound")
        if bound is not None:
            beta = short_value(release.query_error.get("failure_probability"))
            told += f", all within {bound:,.1f} records, except with probability {beta}"
        facts["answers"] = told
    return facts


def _bins_facts(release: SyntheticDatabase) -> dict[str, str]:
    """What the released values of attributes with bins are, where there are any."""
    if not any(isinstance(attribute, BinnedAttribute) for attribute in release.domain):
        return {}
    drawn = "drawn uniformly in its bin: what is known of a value is its bin"
    return {"in bins": drawn if release.bin_values else "the middle of a bin stands for its values"}


def _errors(release: SyntheticDatabase) -> RenderableType:
    """The marginals of the workload, those with the largest error first."""
    from rich.console import Group
    from rich.text import Text

    def size(names: tuple[str, ...]) -> float:
        error = release.errors.get(names, {}).get("standard_error")
        return -1.0 if error is None else error

    ordered = sorted(release.workload, key=size, reverse=True)
    num_stated = sum(size(names) >= 0 for names in ordered)
    rows = []
    for names in ordered[:_SHOWN_MARGINALS]:
        error = release.errors.get(names, {})
        rows.append((", ".join(names), *(short_value(error.get(key)) for key in _ERROR_COLUMNS)))
    parts: list[RenderableType] = [plain_table(("marginal", *_ERROR_COLUMNS.values()), rows)]
    parts.append(
        Text("standard error of a cell and bound of all, in records; how often the bound fails")
    )
    smaller = num_stated - _SHOWN_MARGINALS
    if smaller > 0:
        parts.append(Text(f"and {smaller:,} more, with no larger errors"))
    not_shown = len(ordered) - max(num_stated, _SHOWN_MARGINALS)
    if not_shown > 0:
        parts.append(
            Text(f"and {not_shown:,} more that were not measured whole: no error is stated")
        )
    return Group(*parts)


_ERROR_COLUMNS = {
    "standard_error": "standard error",
    "bound": "bound",
    "failure_probability": "fails with",
}


def _attribute_row(attribute: Attribute) -> tuple[str, ...]:
    size = attribute.size

    def told(number: int) -> str:
        labels = [attribute.label(code) for code in range(number)]
        return "  ".join(labels if number == size else [*labels, "...", attribute.label(size - 1)])

    whole = [told(size)] if size <= _SHOWN_LABELS else []
    parts = [told(number) for number in range(min(size - 2, _SHOWN_LABELS - 1), 0, -1)]
    # Where none fits, the first and the last one are shown however long they are.
    fitting = [text for text in whole + parts if len(text) <= _LABEL_LETTERS]
    shown = (fitting or (whole + parts)[-1:])[0]
    return attribute.name, attribute.kind, f"{size:,}", shown
