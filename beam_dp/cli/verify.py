"""The command `beam-dp verify`: what a release reveals, recomputed from its card."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from beam_dp.flags.command_line import Command
from beam_dp.flags.flag import DIRECTORY, JSON

if TYPE_CHECKING:
    from rich.console import RenderableType

    from beam_dp.verification.steps import Step
    from beam_dp.verification.verdict import Verification

EXIT_DOES_NOT_HOLD = 1
_SHOWN_FAULTS = 20
# What is told of the words of formulas that occur.
_WORDS = {
    "sensitivity": "how far one unit can move what is measured: L1, the sum of all changes;"
    " L2, the root of the sum of their squares",
    "scale": "of the noise, in the unit of the sensitivity",
    "rho": "loss in zero-concentrated differential privacy",
    "mu^2": "square of the loss in Gaussian differential privacy; Phi is the normal law",
    "k ": "records of one unit that are used, at most",
    "P(key": "that a key which only one unit has is released, at most",
}


def _run(options: argparse.Namespace) -> int:
    """Prints how the loss of a release follows from its noise, and whether its promise holds.

    Returns:
        0, or 1 where the promise, or a figure of the card, does not hold.

    Raises:
        InputError: if there is no release, or a damaged one, or the card lacks what is needed.
    """
    from rich.console import Console

    from beam_dp.releases.kinds import read_any, verify_release

    found = verify_release(read_any(options.directory))
    if options.json:
        print(json.dumps(found.to_json(), ensure_ascii=False, indent=2))
    else:
        Console().print(told(found))
    return 0 if found.holds else EXIT_DOES_NOT_HOLD


def told(found: Verification) -> RenderableType:
    """Returns the steps, what their words mean, what is wrong or to be noted, and the verdict."""
    from beam_dp.reports.terminal import below_each_other, plain_table, plain_text, promise_facts

    kind = found.kind.replace("_", " ")
    facts = {"mechanism": found.mechanism, **promise_facts(found.promise)}
    rows = []
    for place, step in enumerate((*found.steps, found.together), start=1):
        rows += _rows("=" if step is found.together else str(place), step)
    parts: list[RenderableType] = [
        plain_table(("release", kind), facts.items()),
        plain_table(("step", "", ""), rows),
    ]
    formulas = " ".join(step.formula for step in (*found.steps, found.together))
    words = [each for each in _WORDS.items() if each[0] in formulas]
    if words:
        parts.append(plain_table(("where", ""), words))
    if found.faults:
        lines = [(fault,) for fault in found.faults[:_SHOWN_FAULTS]]
        if len(found.faults) > _SHOWN_FAULTS:
            lines.append((f"and {len(found.faults) - _SHOWN_FAULTS:,} more: see --json",))
        parts.append(plain_table(("wrong",), lines))
    if found.notes:
        parts.append(plain_table(("note",), [(note,) for note in found.notes]))
    return below_each_other([*parts, plain_text(verdict(found))])


def _rows(place: str, step: Step) -> list[tuple[str, str, str]]:
    rows = [(place, "what", step.what)]
    for name in ("formula", "theorem", "numbers"):
        rows.append(("", name, getattr(step, name)))
    return rows


def verdict(found: Verification) -> str:
    """Returns one line that says whether the promise holds."""
    from beam_dp.verification.steps import above, more_than

    if found.epsilon == float("inf"):
        return "does not hold: no epsilon follows at the delta of the promise"
    promised = f"{found.promise.epsilon:.6g} was promised"
    if found.epsilon > found.promise.epsilon:
        true = more_than(found.epsilon, found.promise.epsilon)
        return f"does not hold: epsilon {true} at delta {found.promise.delta:g}, where {promised}"
    told = f"epsilon {above(found.epsilon)} at delta {found.promise.delta:g}"
    if found.holds:
        figures = f"{found.num_figures:,} figures of the card were recomputed, and agree"
        return f"holds: {told}, where {promised}; {figures}"
    return f"does not hold: {told}, where {promised}, but figures of the card do not follow"


COMMANDS = {"verify": Command((DIRECTORY, JSON), _run)}
