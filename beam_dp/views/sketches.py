"""What `beam-dp describe`, `report` and `answer` show of sparse queries."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from typing import TYPE_CHECKING, Any

from beam_dp.errors import InputError
from beam_dp.flags.flag import FlagError
from beam_dp.flags.questions import refuse_others
from beam_dp.queries.sparse import SparseQuery, of_type, read_sparse_query
from beam_dp.releases.sketches.release import SparseRelease, key_type_of
from beam_dp.views import terminal
from beam_dp.views.cells import Truth
from beam_dp.views.markup import paragraph, table, text
from beam_dp.views.page import Told, noise_words
from beam_dp.views.terminal import counted, print_wrapped, surely

if TYPE_CHECKING:
    from rich.console import RenderableType


def describe(release: SparseRelease) -> RenderableType:
    """Returns tables of the guarantee, the sketch, the histogram and the parameters."""
    columns = release.plan.get("key") or {}
    weight = columns.get("weight")
    keys = terminal.counted(release.max_sparsity, "key")
    headline = (
        f"Sums over up to {keys} of {columns.get('key', 'a column')}, with values from 0 to 1."
    )
    facts = {
        "mechanism": release.mechanism,
        **terminal.promise_facts(release.guarantee),
        "type of keys": columns.get("key_type", "any"),
        "weight": "1 a record" if weight is None else f"{weight}, from 0 to {release.max_weight:,}",
        "hash": f"{release.hash_key.independence}-wise independent; its key is public",
        "draw": release.draw_id,
    }
    tables: dict[str, dict[str, Any]] = {"release": facts}
    if release.sketch is not None:
        sketch = release.sketch
        tables["sketch"] = {
            "family": sketch.family,
            "cells": f"{len(sketch.cells):,} in {terminal.counted(sketch.num_blocks, 'row')}",
            "noise of a cell": f"{terminal.noise_text(sketch.distribution)},"
            f" scale {sketch.scale:.4g}",
            "estimator": sketch.estimator.replace("_", " "),
        }
    bounds = release.bounds()
    if bounds is not None:
        tables["bound"] = {
            "of": f"one query, {terminal.surely(bounds.failure_probability)}",
            "noise adds": f"at most {bounds.noise:,.1f}",
            "hashing adds": f"at most {bounds.distortion_of_norm:.3g} times the square root of"
            " the sum of the squared counts",
        }
    if release.histogram is not None:
        histogram = release.histogram
        tables["histogram"] = {
            "keys with a count": f"{len(histogram.elements):,}",
            "least count": f"{histogram.threshold:,}",
            "noise of a count": f"discrete Laplace, scale {histogram.scale:.4g}",
        }
    tables["parameter"] = {
        name: value
        for name, value in release.plan.items()
        if name not in ("sketch", "histogram", "key", "bound")
    }
    parts = [terminal.plain_text(headline, "bold"), *terminal.facts_tables(tables)]
    if rows := _key_rows(release):
        parts.append(terminal.plain_table(_KEY_HEADER, rows[:_SHOWN_KEYS], numbers=(1, 2)))
        if len(rows) > _SHOWN_KEYS:
            more = f"and {len(rows) - _SHOWN_KEYS:,} more: release.listed_keys() in Python"
            parts.append(terminal.plain_text(more))
    return terminal.below_each_other(parts)


_SHOWN_KEYS = 20
_KEY_HEADER = "key", "count", "± (95 %)"


def _key_rows(release: SparseRelease) -> list[tuple[str, str, str]]:
    """Returns the listed keys with their noisy counts, largest first."""
    if release.histogram is None:
        return []
    # Laplace noise exceeds its scale times ln 20 with probability 5 %.
    margin = terminal.short(math.log(20) * release.histogram.scale)
    return [
        (key if isinstance(key, str) else repr(key), f"{count:,}", margin)
        for key, count in release.listed_keys()
    ]


def report(release: SparseRelease, _: Truth | None) -> Told:
    """Returns the sections about the supported queries and about the noise."""
    bounds = release.bounds()
    rows = _key_rows(release)
    words = ["This release answers sums over keys, with values from 0 to 1."]
    if not rows:
        words[0] += " Keys are hashed, so no one can list them from the release."
    if bounds is not None:
        words.append(
            f"The noise adds at most {bounds.noise:,.1f} to one answer, and hashing at most"
            f" {bounds.distortion_of_norm:.3g} times the square root of the sum of the squared"
            f" counts, {terminal.surely(bounds.failure_probability)}."
        )
    if release.histogram is not None:
        elements = terminal.counted(len(release.histogram.elements), "key")
        words.append(f"Keys with a count of their own: {elements}.")
    keys = terminal.counted(release.max_sparsity, "key")
    sections = {"What it answers": "".join(paragraph(text(word, 400)) for word in words)}
    if rows:
        caption = "Keys with the largest counts"
        sections[caption] = table(caption, _KEY_HEADER, rows, numbers=(1, 2))
    noise = noise_words(release.noise)
    return Told("Sketch of keys", f"Answers sums over up to {keys}", "", {}, sections, noise)


def answer(release: SparseRelease, options: argparse.Namespace) -> None:
    """Prints the answer to the sparse query in a file."""
    refuse_others(options, ("sparse",))
    path = options.sparse
    if path is None:
        raise FlagError("--sparse is required: this release answers only sparse queries")
    try:
        query = read_query(release, path)
        answer = release.answer_query(query)
    except InputError as error:
        # An error in a line names the file and the line.
        if error.name.startswith(path):
            raise
        raise InputError("--sparse", error.value, error.condition) from None
    if options.json:
        print(json.dumps({"num_elements": query.sparsity, **dataclasses.asdict(answer)}))
        return
    unit = "records" if release.max_weight == 1 else "in weight"
    print(f"{answer.value:,.1f} {unit}, of {counted(query.sparsity, 'key')}")
    print_wrapped(
        f"The standard error is {answer.standard_error:,.1f};"
        f" {surely(answer.failure_probability)}, the error is at most {answer.bound:,.1f}."
    )


def read_query(release: SparseRelease, path: str) -> SparseQuery:
    """Returns the query in a file, with its keys converted to the type of the release's keys."""
    key_type = key_type_of(release.plan)
    query = read_sparse_query(path, keys="integer" if key_type == "integer" else "text")
    if key_type is None:
        return query
    return of_type(query, key_type)
