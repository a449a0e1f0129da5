"""A page for each mechanism: when to choose it, its commands, guarantee and measurements.

Nothing is typed twice: the guide's table says when, the docstrings state the guarantee, and
`docs/claims.md` has the statements that were measured.
"""

from __future__ import annotations

import pathlib
import re
from dataclasses import dataclass

DOCS = pathlib.Path(__file__).parents[2] / "docs"


@dataclass(frozen=True)
class Mechanism:
    """What its page is made of.

    Args:
        name: as people type it.
        program: which makes its releases.
        objects: of `beam_dp`, whose docstrings the page shows.
        guides: documents with more about it.
        claims: the groups of rows of `docs/claims.md` that are about it.
    """

    name: str
    program: str
    objects: tuple[str, ...]
    guides: tuple[str, ...]
    claims: tuple[str, ...] = ()

    @property
    def page(self) -> str:
        """The page's path; beside the guides, so that links of their tables hold."""
        return f"docs/mechanism_{self.name}.md"


_DATABASE, _ANSWERS = "release-synthetic-database", "answer-queries"
_PROJECTION = "release-projection"
MECHANISMS = (
    Mechanism("mwem", _DATABASE, ("MWEM",), ("wide",), ("offline_weights", "selection")),
    Mechanism("gaussian", _DATABASE, ("Gaussian",), ("accuracy",), ("linear_answers",)),
    Mechanism("laplace", _DATABASE, ("Laplace",), ("accuracy",), ("linear_answers",)),
    Mechanism(
        "small_db",
        _DATABASE,
        ("SmallDB", "MultisetChoice"),
        ("small_db",),
        ("small_db", "vc_dimension"),
    ),
    Mechanism(
        "intervals", "release-intervals", ("ReleaseIntervals",), ("intervals",), ("intervals",)
    ),
    Mechanism(
        "private_mw",
        _ANSWERS,
        ("PrivateMW", "plan_private_mw"),
        ("online",),
        ("multiplicative_weights", "sparse_vector"),
    ),
    Mechanism(
        "sparse_mw",
        _ANSWERS,
        ("SparseMW", "plan_sparse_mw", "release_conjunctions"),
        ("sparse",),
        ("sparse_weights",),
    ),
    Mechanism(
        "top_queries",
        _ANSWERS,
        ("plan_top_queries", "draw_top_queries", "choose_top", "top_choice"),
        ("queries",),
        ("selection",),
    ),
    Mechanism(
        "workload_answers",
        _ANSWERS,
        ("plan_workload_answers", "draw_workload_answers"),
        ("queries",),
        ("linear_answers", "query_forms"),
    ),
    Mechanism(
        "sparse_project", _PROJECTION, ("SparseProject",), ("sparse_queries",), ("projections",)
    ),
    Mechanism("count_sketch", _PROJECTION, ("CountSketch",), ("sparse_queries",)),
    Mechanism("stability_histogram", _PROJECTION, ("StabilityHistogram",), ("sparse_queries",)),
    Mechanism("hybrid", _PROJECTION, ("HybridSketch",), ("sparse_queries",)),
    Mechanism(
        "tables",
        "release-windows",
        ("plan_window_tables", "plan_window_databases"),
        ("streams",),
    ),
)


def mechanism_pages() -> dict[str, str]:
    """Returns the text of each page, by its path."""
    return {each.page: _page(each) for each in MECHANISMS}


def shown_objects() -> frozenset[str]:
    """Returns the names of `beam_dp` that these pages show, and no other page of the reference."""
    return frozenset(name for each in MECHANISMS for name in each.objects)


def _page(mechanism: Mechanism) -> str:
    links = [f"[{_heading(guide)}]({guide}.md)" for guide in ("mechanisms", *mechanism.guides)]
    parts = [f"# `{mechanism.name}`", *_when(mechanism.name)]
    parts.append(f"Made by `beam-dp {mechanism.program}`, whose flags are on [one page](flags.md).")
    parts.append(f"More: {', '.join(links)}.")
    parts += [f"::: beam_dp.{name}" for name in mechanism.objects]
    claims = _claims(mechanism.claims)
    if claims:
        head = "| key and source | statement | wrong in print | here | measured |\n" + "| --- " * 5
        parts += [
            "## Claimed, and measured",
            "How: [claims](claims.md).",
            "\n".join([f"{head}|", *claims]),
        ]
    return "\n\n".join(parts) + "\n"


def _heading(guide: str) -> str:
    return (DOCS / f"{guide}.md").read_text("utf-8").partition("\n")[0].removeprefix("# ")


def _when(name: str) -> list[str]:
    """Returns what the guide's table says about a mechanism, if it has a row there."""
    text = (DOCS / "mechanisms.md").read_text("utf-8").partition("## What to type")[2]
    for line in text.partition("\n## ")[0].splitlines():
        if re.match(rf"\|[^|]*`{name}`", line):
            _, what, when = line.strip("| ").split(" | ")
            return [f"{what[0].upper()}{what[1:]}.", f"**Choose it when:** {when}."]
    return []


def _claims(groups: tuple[str, ...]) -> list[str]:
    lines = (DOCS / "claims.md").read_text("utf-8").splitlines()
    return [line for line in lines if line.startswith(tuple(f"| `{each}." for each in groups))]
