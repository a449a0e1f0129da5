"""Noisy answers to a declared workload of linear queries, all at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from beam_dp.checks import checked_integer, checked_number
from beam_dp.domain.files import domain_from_json
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.noise.bound import largest_noise, noise_variance
from beam_dp.privacy.guarantee import Neighboring
from beam_dp.queries.linear import VALUE_BITS, LinearQuery
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.queries.lines import SHOWN_LETTERS, read_line
from beam_dp.queries.reader import LinearQueries
from beam_dp.queries.sensitivity import WorkloadSensitivity, workload_sensitivity
from beam_dp.releases.answers.release import AnswersRelease
from beam_dp.verification.claims import composed
from beam_dp.verification.fields import check_fields
from beam_dp.verification.steps import Step, noise_step
from beam_dp.verification.verdict import Figures, Verification, judged

_UNIT = 1 << VALUE_BITS
_SQUARED = "l2_sensitivity_squared"
_SENSITIVITIES = ("l1_sensitivity", "l2_sensitivity", "sensitivity_is_exact")
PLAN = (
    *("mechanism", "distribution", "scale", "grid", "num_queries", "num_records"),
    *("standard_error", "bound", "failure_probability", "guarantee", "loss"),
)
CARD = ("mechanism", "guarantee", "num_records", "plan")
CARD_OPTIONAL = ("domain", "ledger_release", "versions", "num_answers", "num_refused")


def verify_linear_answers(release: AnswersRelease) -> Verification:
    """Returns what the card of answers with noise on each comes to, and the queries beside them."""
    figures, plan = Figures(), release.card["plan"]
    domain = domain_from_json(release.card.get("domain"), "card")
    check_fields("plan", plan, (*PLAN, *_SENSITIVITIES), (_SQUARED, "ledger_release"))
    card_figures(release, plan, figures)
    notes = []
    queries, num_cut = distinct_queries(release, domain, figures)
    found = None
    if queries:
        found = workload_sensitivity(
            LinearWorkload(domain, tuple(queries)),
            release.guarantee.neighboring,
            release.guarantee.max_records_per_unit,
        )
        _compare(found, plan, figures, is_whole=not num_cut)
    least, most = len(queries) + bool(num_cut), len(queries) + num_cut
    figures.at_least("num_queries", plan["num_queries"], least, most)
    if num_cut:
        notes.append(
            "A query is too long for the file, which holds its first letters: the sensitivities are"
            " those of the card, and were only compared with those of the other queries."
        )
    steps = linear_answer_steps(plan, None if num_cut else found)
    figures.loss("plan.loss", plan["loss"], composed(step.claims for step in steps))
    error_figures(release, plan, figures, plan["num_queries"], stated_probability(plan))
    return judged(
        "answers", str(release.card["mechanism"]), release.guarantee, steps, figures, notes=notes
    )


def linear_answer_steps(
    plan: Mapping[str, Any], sensitivity: WorkloadSensitivity | None
) -> list[Step]:
    """Returns the step of noise on a vector of answers, in steps of a grid of a record.

    Args:
        plan: what a card states of it: sensitivities in records, scale in grid steps.
        sensitivity: of the queries; None where only the card tells it.
    """
    distribution = plan.get("distribution")
    grid = checked_integer("grid", plan.get("grid"), 1, _UNIT)
    if sensitivity is not None:
        l1, l2_squared = Fraction(sensitivity.l1, _UNIT), Fraction(sensitivity.l2_squared, _UNIT**2)
    else:
        l1 = Fraction(checked_number("l1_sensitivity", plan.get("l1_sensitivity"), least=0))
        l2 = Fraction(checked_number("l2_sensitivity", plan.get("l2_sensitivity"), least=0))
        # Cards of version 0.1 state the root alone, which is rounded up.
        l2_squared = l2**2
        if _SQUARED in plan:
            l2_squared = Fraction(checked_number(_SQUARED, plan[_SQUARED], least=0))
    what = f"answer {checked_integer('num_queries', plan.get('num_queries'), 1):,} queries"
    steps = math.ceil(l1 * grid)
    return [noise_step(what, distribution, steps, l2_squared * grid**2, plan.get("scale", 0.0))]


def card_figures(release: AnswersRelease, plan: Mapping[str, Any], figures: Figures) -> None:
    """Compares what a card of answers with noise on each states twice."""
    check_fields("card", release.card, CARD, CARD_OPTIONAL)
    figures.equal("plan.guarantee", plan["guarantee"], release.guarantee.to_json())
    figures.equal("plan.mechanism", plan["mechanism"], release.card["mechanism"])
    number = plan["num_records"]
    if number == "noisy":
        figures.equal("num_records", release.card["num_records"], None)
        figures.equal("neighboring", release.guarantee.neighboring, Neighboring.ADD_OR_REMOVE_ONE)
    else:
        checked_integer("plan.num_records", number, 1)
        figures.equal("num_records", release.card["num_records"], {"public": number})


def distinct_queries(
    release: AnswersRelease, domain: Domain, figures: Figures
) -> tuple[list[LinearQuery], int]:
    """Returns the distinct queries that were answered, and how many of the file are cut off.

    A query that was asked twice has one answer: another one has noise of its own.

    Raises:
        InputError: if a query can't be read that is not cut off.
    """
    reader = LinearQueries(domain)
    found: dict[LinearQuery, float] = {}
    num_cut = 0
    for row in release.rows:
        if row["error"] is not None:
            continue
        figures.equal("route of an answer", row["route"], "measured")
        line = read_line(reader, row["query"])
        if line.query is not None:
            first = found.setdefault(line.query, row["value"])
            figures.equal("second answer to a query", row["value"], first)
        elif len(row["query"]) == SHOWN_LETTERS:
            num_cut += 1
        else:
            raise InputError("query", row["query"], "must be a query of the domain of the card")
    return list(found), num_cut


def _compare(
    found: WorkloadSensitivity, plan: Mapping[str, Any], figures: Figures, *, is_whole: bool
) -> None:
    """Compares the sensitivities of a card with those of the queries, or of some of them."""
    squared = float(Fraction(found.l2_squared, _UNIT**2))
    for name, value in (
        ("l1_sensitivity", found.l1 / _UNIT),
        ("l2_sensitivity", found.l2 / _UNIT),
        (_SQUARED, squared),
    ):
        if is_whole:
            figures.same(name, plan.get(name, value), value)
        elif found.is_exact:
            figures.at_least(name, plan.get(name, value), value)
    if is_whole:
        figures.equal("sensitivity_is_exact", plan["sensitivity_is_exact"], found.is_exact)


def error_figures(
    release: AnswersRelease,
    plan: Mapping[str, Any],
    figures: Figures,
    num_answers: int,
    failure_probability: float,
) -> None:
    """Compares the errors that are stated, of all answers and of each, with those of the noise."""
    distribution, scale, grid = plan["distribution"], plan["scale"], plan["grid"]
    error = math.sqrt(noise_variance(distribution, scale)) / grid
    bound = largest_noise(distribution, scale, num_answers, failure_probability) / grid
    figures.same("standard_error", plan.get("standard_error"), error)
    figures.same("bound", plan.get("bound"), bound)
    for row in release.rows:
        if row["error"] is None:
            figures.same("standard_error of an answer", row["standard_error"], error)
            figures.same("bound of an answer", row["bound"], bound)


def stated_probability(plan: Mapping[str, Any]) -> float:
    """Returns with which probability the errors that a card states do not hold.

    Raises:
        InputError: if it is none.
    """
    beta = plan.get("failure_probability")
    if not isinstance(beta, float) or not 0 < beta < 1:
        raise InputError("failure_probability", beta, "must be > 0 and < 1")
    return beta
