"""The steps of a synthetic database: measured tables, MWEM's choices, and SmallDB."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from beam_dp.checks import check_choice, checked_integer, checked_number
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.privacy.loss import Loss, composed
from beam_dp.privacy.rounding import UNIT, root_up, rounded_up, up
from beam_dp.privacy.steps import (
    LAPLACE,
    Step,
    above,
    comparisons_step,
    flip_step,
    gaussian_step,
    gaussian_vector,
    laplace_step,
    noise_step,
    number,
    positive,
    repeated,
    selection_step,
)
from beam_dp.privacy.unit_costs import least_overlap
from beam_dp.queries.linear import VALUE_BITS, LinearQuery
from beam_dp.releases.synthetic_database.measured_tables import (
    MAX_GRID,
    MeasuredTable,
    PairDistances,
)
from beam_dp.releases.synthetic_database.release import NUM_RECORDS, SyntheticDatabase
from beam_dp.releases.verdict import Figures, check_fields, of_release

# The steps that measure tables for a synthetic database, as a card or a plan states them.


# Up to this many attributes, all patterns of agreement between two records are tried.
_MAX_PATTERNS = 20


def table_steps(
    domain: Domain,
    tables: Sequence[MeasuredTable],
    guarantee: Guarantee,
    max_unit_cost: float | None = None,
) -> list[Step]:
    """Returns the steps that measure some tables: one step for each kind of table and of noise.

    A record is in one cell of each table. So k records of a unit move a table by k in L1 norm and
    by k in L2 norm; if the unit is replaced, by 2 k and by sqrt(2) k. The change of residuals by
    one record follows from the sizes of the attributes; the change by a replacement follows from
    the attributes in which the two records agree. If a unit's records are limited to the cost of C
    equal records, the unit moves residuals with Gaussian noise no more than C equal records do.
    """
    found = []
    for kind in ("table", "residual"):
        for distribution in ("discrete_laplace", "discrete_gaussian"):
            held = [
                each for each in tables if (each.kind, each.distribution) == (kind, distribution)
            ]
            if not held:
                continue
            words = f"measure {len(held):,} {kind}{'s' * (len(held) > 1)}"
            if distribution == "discrete_laplace":
                found.append(_laplace(words, domain, held, guarantee))
            else:
                found.append(_gaussian(words, domain, held, guarantee, max_unit_cost))
    return found


def largest_change(
    domain: Domain, weighted: Iterable[tuple[tuple[int, ...], Fraction]], neighboring: Neighboring
) -> Fraction:
    """Returns a bound, for any record, on the sum of weight x (L2 change of a residual)^2.

    The residual of one record has the squared norm prod(1 - 1 / size). The inner product of the
    residuals of two records has a factor 1 - 1 / size for each attribute in which the records
    agree, and -1 / size for each other attribute. A replacement may also add a record to the domain
    or remove a record from it.

    ``weighted``: the ascending axes of each residual, with the weight of the residual.
    """
    entries = list(weighted)
    one = Fraction(0)
    for axes, weight in entries:
        one += rounded_up(weight * math.prod(1 - Fraction(1, domain.shape[a]) for a in axes))
    if neighboring is Neighboring.ADD_OR_REMOVE_ONE:
        return one
    used = sorted({axis for axes, _ in entries for axis in axes if domain.shape[axis] > 1})
    if len(used) > _MAX_PATTERNS:
        supports = [axes for axes, _ in entries]
        bound = least_overlap(domain.shape, supports, [float(weight) for _, weight in entries])
        return max(one, 2 * one - 2 * Fraction(bound))
    # Indexed by pattern, with one bit per attribute: first the weight of each set of attributes,
    # then, attribute by attribute, the weighted inner product if two records agree exactly there.
    overlaps = np.zeros(2 ** len(used))
    for axes, weight in entries:
        if any(domain.shape[axis] == 1 for axis in axes):
            continue  # an attribute with one code has no residual
        overlaps[sum(1 << used.index(axis) for axis in axes)] += float(weight)
    total = float(overlaps.sum())
    for place, axis in enumerate(used):
        pairs = overlaps.reshape(-1, 2, 1 << place)
        without, held = pairs[:, 0], pairs[:, 1]
        apart = held / domain.shape[axis]
        overlaps = np.stack([without - apart, without + held - apart], axis=1).ravel()
    # The rounding error of each sum is a few units in the last place per attribute.
    least = Fraction(float(overlaps.min())) - Fraction(4 * (len(used) + 8) * UNIT * total)
    return max(one, 2 * one - 2 * least)


def _laplace(
    what: str, domain: Domain, tables: Sequence[MeasuredTable], guarantee: Guarantee
) -> Step:
    moved = guarantee.neighboring.num_moved * guarantee.max_records_per_unit
    epsilons = []
    for each in tables:
        norm = Fraction(moved * each.grid)
        if each.kind == "residual":
            sizes = [domain.shape[axis] for axis in domain.axes(each.names)]
            norm *= math.prod(2 * (1 - Fraction(1, size)) for size in sizes)
        epsilons.append(Loss.pure(norm / positive(each.scale)))
    loss = composed(epsilons)
    assert loss.epsilon is not None
    scale = number(Fraction(tables[0].scale) / tables[0].grid)
    one = f"{moved} / {scale}"
    numbers = one if len(tables) == 1 else f"{len(tables):,} x {one}"
    if len({(each.scale, each.grid) for each in tables}) > 1 or tables[0].kind == "residual":
        numbers = f"{len(tables):,} of different sensitivities or scales"
    numbers += f" = epsilon {above(loss.epsilon)}"
    return Step(what, "epsilon = sum of L1 sensitivity / scale", LAPLACE, numbers, loss)


def _gaussian(
    what: str,
    domain: Domain,
    tables: Sequence[MeasuredTable],
    guarantee: Guarantee,
    max_unit_cost: float | None,
) -> Step:
    most = Fraction(guarantee.max_records_per_unit)
    limit = f"records of a unit {guarantee.max_records_per_unit:,}"
    is_limited = tables[0].kind == "residual" and (
        guarantee.neighboring is Neighboring.ADD_OR_REMOVE_ONE
    )
    if is_limited and max_unit_cost is not None and max_unit_cost < most:
        most, limit = Fraction(max_unit_cost), f"cost of a unit {number(max_unit_cost)}"
    records = most**2

    def change(less: int) -> Fraction:
        """Returns the sum over tables of (L2 change)^2 / (noise scale^2 - ``less``)."""
        weights = [
            (domain.axes(each.names), rounded_up(Fraction(each.grid**2) / (square(each) - less)))
            for each in tables
        ]
        if tables[0].kind == "residual":
            return records * largest_change(domain, weights, guarantee.neighboring)
        total = sum((weight for _, weight in weights), Fraction(0))
        return records * guarantee.neighboring.num_moved * total

    def square(each: MeasuredTable) -> Fraction:
        return positive(each.scale) ** 2

    mu_squared = None
    if all(each.scale > 2 for each in tables):
        mu_squared = rounded_up(change(4))
    deviations = sorted(each.scale / each.grid for each in tables)
    spread = number(deviations[0])
    if deviations[-1] != deviations[0]:
        spread += f" to {number(deviations[-1])}"
    numbers = f"{limit}, scale {spread} records"
    return gaussian_step(what, mu_squared, change(0) / 2, numbers, "sum of ")


def tables_of(entries: Iterable[object], domain: Domain) -> list[MeasuredTable]:
    """Returns the measured tables that a card states."""
    found = []
    for entry in entries:
        found.append(MeasuredTable.from_json(entry, domain))
        if not 0 < found[-1].scale < math.inf:
            raise InputError("scale", found[-1].scale, "must be finite and > 0")
    return found


# The rounding error of sums of spent units.
_ROUNDING = 1e-9
_STOP_SCALES = ("threshold_scale", "question_scale")


def rounds_steps(
    guarantee: Guarantee,
    parameters: Mapping[str, Any],
    tables: Sequence[MeasuredTable] | None,
    figures: Figures,
) -> list[Step]:
    """Returns the steps of rounds that select a marginal and measure the whole marginal.

    A round of n units costs as much as n rounds of one unit, in epsilon or in mu^2, for any
    annealed schedule. So the proved loss follows from the scales of one unit and from the number of
    units; the measured tables must not cost more.

    ``tables``: the measured tables; None before any measurement.
    """
    distribution = parameters.get("distribution")
    num_units = checked_integer("num_units", parameters.get("num_units"), 1)
    moved, k = guarantee.neighboring.num_moved, guarantee.max_records_per_unit
    # A replacement moves a table by k in two cells, so it moves an L1 distance by 2 k.
    named = parameters.get("selection")
    check_choice("selection", named, ("permute_and_flip", "exponential_mechanism"))
    select = flip_step if named == "permute_and_flip" else selection_step
    selections = select(
        "select a marginal", moved * k, parameters.get("selection_scale", 0.0), num_units
    )
    scale, grid = parameters.get("measurement_scale", 0.0), _grid(parameters)
    l1, l2_squared = moved * k * grid, moved * (k * grid) ** 2
    one = noise_step("measure the selected one", distribution, l1, l2_squared, scale)
    steps = [selections, repeated(one, num_units)]
    total_scale = checked_number("total_scale", parameters.get("total_scale"), least=0)
    totals = [total_scale] if total_scale else []
    if tables is not None:
        # If two scales differ, the smaller scale is charged. Each listed total is charged.
        totals = [min([each.scale, *totals]) for each in tables if not each.names]
        steps += [
            noise_step(
                "measure what the rounds do not pay for", distribution, l1, l2_squared, finer
            )
            for finer in _compare(parameters, tables, figures)
        ]
    return [noise_step("count the records", distribution, l1, l1**2, s) for s in totals] + steps


def _compare(
    parameters: Mapping[str, Any], tables: Sequence[MeasuredTable], figures: Figures
) -> list[float]:
    """Compares the measured tables with the paid units; returns the scales if tables cost more."""
    distribution, grid = parameters["distribution"], _grid(parameters)
    rounds = [each for each in tables if each.names]
    is_counted = bool(parameters["total_scale"])
    figures.equal("noise of the total, entries", len(tables) - len(rounds), int(is_counted))
    for each in tables:
        kind = (each.kind, each.distribution, each.grid)
        figures.equal("noise", kind, ("table", distribution, grid))
        if not each.names:
            figures.same("scale of the total", each.scale, parameters["total_scale"])
    unit: float = parameters["measurement_scale"]

    def units(scale: float) -> float:
        if distribution == "discrete_laplace":
            return unit / scale
        return (unit**2 - 4) / (scale**2 - 4) if scale > 2 else math.inf

    spent = sum(units(each.scale) for each in rounds)
    figures.at_least("noise: units of the tables", spent, 0, parameters["num_units"])
    if parameters.get("num_rounds") != "annealed":
        figures.equal("num_rounds", parameters.get("num_rounds"), len(rounds))
        for each in rounds:
            figures.same("scale of a round", each.scale, unit)
    is_paid = spent <= parameters["num_units"] * (1 + _ROUNDING)
    return [] if is_paid else [each.scale for each in rounds]


def _grid(parameters: Mapping[str, Any]) -> int:
    """Returns the number of grid units per record of the measurements."""
    return checked_integer("grid", parameters.get("grid"), 1, MAX_GRID)


def textbook_steps(guarantee: Guarantee, parameters: Mapping[str, Any]) -> list[Step]:
    """Returns the steps of Hardt, Ligett and McSherry's algorithm, with one cell per round.

    A unit moves a cell by at most k records, under either relation, and so does the error of the
    cell. The error may be compared with a threshold before the cell is measured; the first
    comparison above the threshold ends all rounds.
    """
    distribution = parameters.get("distribution")
    rounds = checked_integer("num_rounds", parameters.get("num_rounds"), 1)
    k = guarantee.max_records_per_unit
    one = noise_step("measure it", distribution, k, k**2, parameters.get("measurement_scale", 0.0))
    selected = selection_step("select a cell", k, parameters.get("selection_scale", 0.0), rounds)
    steps = [selected, repeated(one, rounds)]
    if "stop_below" in parameters:
        noise = {each: parameters.get(f"stop_{each}") for each in _STOP_SCALES}
        steps.insert(1, comparisons_step({**noise, "redraws_threshold": False}, k, 1))
    return steps


def textbook_bound(release: SyntheticDatabase, figures: Figures) -> None:
    """Checks the published bound, 2 N sqrt(ln|X| / T) + 10 k T ln|Q| / epsilon.

    T is the number of rounds, and N the number of records. This bound is for all T rounds; see
    ``_stopped_bound`` if rounds may end early.
    """
    if "stop_below" in release.plan:
        _stopped_bound(release, figures)
    parameters, guarantee = (
        release.plan,
        of_release(release.limited_guarantee, release.left_out, release.discovered),
    )
    rounds, found = parameters["num_rounds"], None
    num_queries = release.workload.num_cells()
    if guarantee.delta == 0 and "stop_below" not in parameters:
        found = 2 * release.num_records * math.sqrt(math.log(release.domain.num_cells) / rounds)
        each = guarantee.epsilon / guarantee.max_records_per_unit
        found += 10 * rounds * math.log(max(num_queries, 2)) / each
    figures.same("bound_of_average", parameters.get("bound_of_average"), found)
    is_vacuous = found is None or found >= release.num_records or 2 * rounds >= num_queries
    figures.equal(
        "bound_of_average_is_vacuous", parameters.get("bound_of_average_is_vacuous"), is_vacuous
    )


def _stopped_bound(release: SyntheticDatabase, figures: Figures) -> None:
    """Compares the error bound and the number of rounds if the rounds may end early."""
    parameters, rounds = release.plan, release.plan["num_rounds"]
    selection_scale, beta = parameters["selection_scale"], parameters["failure_probability"]
    grid = checked_integer("score_grid", parameters.get("score_grid"), 1, MAX_GRID)

    def rounded(scale: float, log_term: float) -> float:
        return math.ceil(scale * grid * log_term) / grid

    found = parameters["stop_below"] * release.num_records + 1 / grid
    found += rounded(parameters["stop_threshold_scale"], math.log(4 / beta))
    found += rounded(parameters["stop_question_scale"], math.log(4 * rounds / beta))
    found += selection_scale * math.log(4 * release.workload.num_cells() * rounds / beta)
    figures.same("bound_when_stopped", parameters.get("bound_when_stopped"), found)
    updates = checked_integer("num_updates", parameters["num_updates"], 0)
    figures.at_least("num_updates", updates, 0, rounds)


_GRID = "score_grid"
_ZERO = Fraction(0)


@dataclasses.dataclass(frozen=True)
class Check:
    """A check that chooses and adds sets of attributes: the names of its figures on a card."""

    what: str
    size: int  # the number of attributes of a set
    choices: str
    share: str
    scale: str
    added_share: str
    added: str  # the number of added sets, in the card's statements about the fit


PAIRS = Check(
    what="choose a pair that was left out",
    size=2,
    choices="most_choices",
    share="choice_share",
    scale="choice_scale",
    added_share="added_share",
    added="num_added_pairs",
)
TRIPLES = Check(
    what="choose a triple",
    size=3,
    choices="most_triple_choices",
    share="triple_choice_share",
    scale="triple_choice_scale",
    added_share="triple_added_share",
    added="num_added_triples",
)
# The numbers of the triples that may be chosen, and of their cells.
NUM_TRIPLES = ("num_triples", "num_triple_cells")


def checks_of(parameters: Mapping[str, Any]) -> tuple[Check, ...]:
    """Returns the checks of a selection, in the order of their measurements."""
    return (PAIRS, TRIPLES) if TRIPLES.choices in parameters else (PAIRS,)


def selection_steps(
    domain: Domain,
    guarantee: Guarantee,
    parameters: Mapping[str, Any],
    fit: Mapping[str, Any] | None,
    tables: Sequence[MeasuredTable],
    figures: Figures,
) -> list[Step]:
    """Returns the steps of a selection by noisy scores.

    The scores are one vector, checks make choices, and all other steps measure residuals.
    Noise determines the number of choices and the measured pairs, so the card states how much the
    choices and measurements may spend together. The actual loss must not exceed this amount.

    ``fit``: the card's statements about the fit; None before anything is drawn.
    """
    pairs = checked_integer("num_candidates", parameters.get("num_candidates"), 0)
    moved = guarantee.neighboring.num_moved * guarantee.max_records_per_unit
    scores = {}
    # Every measured pair was scored.
    figures.at_least("num_candidates", pairs, sum(len(each.names) == 2 for each in tables))
    triples = [domain.restrict(each.names).num_cells for each in tables if len(each.names) > 2]
    for name, least in zip(NUM_TRIPLES, (len(triples), sum(triples)), strict=True):
        figures.at_least(name, checked_integer(name, parameters.get(name, 0), 0), least)
    if pairs:
        deviation = checked_number("score_deviation", parameters.get("score_deviation"), above=0)
        what, l2_squared = f"score {pairs:,} pairs", moved**2 * pairs
        grid = checked_integer(_GRID, parameters.get(_GRID), 1)
        scale = parameters.get("score_scale", 0.0)
        scores["scores_share"] = gaussian_vector(what, l2_squared * grid**2, scale)
        figures.same("score_deviation", deviation, scale / grid)
    if "prior_scale" in parameters:
        # The distances of all pairs are added up, and a record moves each distance.
        grid = checked_integer("prior_grid", parameters.get("prior_grid"), 1, MAX_GRID)
        what, l2_squared = "compare public records", (moved * max(pairs, 1) * grid) ** 2
        scores["prior_share"] = gaussian_vector(what, l2_squared, parameters["prior_scale"])
    _share_figures(domain, guarantee, parameters, fit, tables, scores, figures)
    choices = [
        step
        for check in checks_of(parameters)
        for step in _choices(check, guarantee, parameters, fit, figures)
    ]
    steps = [*scores.values(), *choices]
    # Choices and measurements share a mu^2. Noise splits it, so all of it is charged, in rho too.
    whole = _squares(parameters)
    # A plan lists what is measured first, a card all that was measured.
    most = Fraction(parameters["attributes_mu"]) ** 2 if fit is None else None
    squares = whole - sum((each.loss.mu_squared or _ZERO for each in choices), _ZERO)
    rho = whole / 2 - sum((each.loss.rho or _ZERO for each in choices), _ZERO)
    measured = table_steps(domain, tables, guarantee)
    measured = [_reserved(each, squares, rho, figures, most) for each in measured]
    return [*measured, *steps]


def _choices(
    check: Check,
    guarantee: Guarantee,
    parameters: Mapping[str, Any],
    fit: Mapping[str, Any] | None,
    figures: Figures,
) -> list[Step]:
    """Returns the step of all choices of a check; a plan states their maximum number."""
    number = most = checked_integer(check.choices, parameters[check.choices], 0)
    if fit is not None:
        number = checked_integer(check.added, fit.get(check.added), 0)
        figures.at_least(check.choices, most, number)
    one = _choice(check, guarantee, parameters, number)
    return [one] if number else []


def _choice(
    check: Check, guarantee: Guarantee, parameters: Mapping[str, Any], number: int = 1
) -> Step:
    # A record, even one that replaces another, moves the largest distance of a cell of a pair by at
    # most 1. The score of a triple is a sum over cells, and a replacement moves two cells.
    moved = 1 if check is PAIRS else guarantee.neighboring.num_moved
    scale = parameters.get(check.scale, 0.0)
    return selection_step(check.what, moved * guarantee.max_records_per_unit, scale, number)


def _added_figures(
    check: Check,
    domain: Domain,
    guarantee: Guarantee,
    tables: Sequence[MeasuredTable],
    fit: Mapping[str, Any],
    squared_mu: float,
    figures: Figures,
) -> None:
    """Compares the number of added sets with how many sets were measured alone at the end."""
    added = 0
    for each in reversed([each for each in tables if len(each.names) <= check.size]):
        (step,) = table_steps(domain, [each], guarantee)
        found = step.loss.mu_squared
        if (
            len(each.names) != check.size
            or found is None
            or not math.isclose(up(found), squared_mu, rel_tol=1e-9)
        ):
            break
        added += 1
    figures.equal(f"fit.{check.added}", fit[check.added], added)


def _share_figures(
    domain: Domain,
    guarantee: Guarantee,
    parameters: Mapping[str, Any],
    fit: Mapping[str, Any] | None,
    tables: Sequence[MeasuredTable],
    scores: Mapping[str, Step],  # by the names of their shares
    figures: Figures,
) -> None:
    """Compares the shares of mu^2 with the amount that each step may spend."""
    checks = checks_of(parameters)
    names = [name for check in checks for name in (check.share, check.added_share)]
    before = dict.fromkeys(("attributes_share", "scores_share", *scores))
    shares = {
        name: checked_number(name, parameters.get(name), above=0, below=1)
        for name in (*before, *names)
    }
    of_attributes = Fraction(checked_number("mu", parameters["attributes_mu"], above=0)) ** 2
    whole = of_attributes / Fraction(shares["attributes_share"])
    of_pairs = Fraction(checked_number("mu", parameters["pairs_mu"], above=0)) ** 2
    rest = 1 - sum((Fraction(shares[name]) for name in before), _ZERO)
    figures.same("pairs_mu", float(of_pairs), float(whole * rest))
    for check in checks if fit is not None else ():
        of_added = float(whole) * shares[check.added_share]
        _added_figures(check, domain, guarantee, tables, fit or {}, of_added, figures)
    spent = [
        *((check.share, _choice(check, guarantee, parameters)) for check in checks),
        *scores.items(),
    ]
    for name, step in spent:
        found, epsilon = step.loss.mu_squared, step.loss.epsilon or _ZERO
        least = math.inf if found is None else up(found / whole)
        # A choice is planned by its range, also where its pure epsilon has a smaller mu.
        most = max(least, up(Fraction(math.pi / 8) * epsilon**2 / whole))
        figures.at_least(name, shares[name], least, most)


def score_figures(
    distances: PairDistances,
    parameters: Mapping[str, Any],
    public_number: int | None,
    figures: Figures,
) -> None:
    """Compares the figures behind the bounds of left-out pairs with the stated scores."""
    stated = parameters.get("score_deviation")
    figures.same("distances: standard_deviation", distances.deviation, stated)
    figures.equal("distances: pairs", len(distances.pairs), parameters.get("num_candidates"))
    if distances.independent is not None:
        grid, number = distances.independent.grid, distances.independent.num_records
        figures.equal("distances: grid", grid, parameters.get(_GRID))
        if public_number is not None:
            figures.equal("distances: num_records", number, float(public_number))


def _squares(parameters: Mapping[str, Any]) -> Fraction:
    """Returns the sum of mu^2 that is reserved for measurements."""
    stated = [parameters.get(name) for name in ("attributes_mu", "pairs_mu")]
    return sum((Fraction(checked_number("mu", each, above=0)) ** 2 for each in stated), _ZERO)


def _reserved(
    step: Step, squares: Fraction, rho: Fraction, figures: Figures, most: Fraction | None
) -> Step:
    """Returns the step with the reserved loss, or with the actual loss if that is larger."""
    found = step.loss.mu_squared
    assert step.loss.rho is not None
    # What was measured proves no epsilon either: with other noise it had been something else.
    loss = Loss(rho=max(step.loss.rho, rho))
    if found is None:
        return dataclasses.replace(step, loss=loss)
    most = squares if most is None else most
    figures.at_least("noise: mu", root_up(found), 0, root_up(max(most, _ZERO)))
    loss = dataclasses.replace(loss, mu_squared=max(found, squares))
    numbers = f"{step.numbers}, of {above(squares)} reserved"
    return dataclasses.replace(step, numbers=numbers, loss=loss)


# An upper bound on the number of records that any version chooses.
_MAX_SIZE = 2**20
_CHOICE = "choice of the records"
_SCALES = {_CHOICE: "selection_scale", NUM_RECORDS: "total_scale"}
_LAWS = {_CHOICE: "exponential", NUM_RECORDS: "discrete_laplace"}


def small_db_steps(
    domain: Domain,
    guarantee: Guarantee,
    parameters: Mapping[str, Any],
    noise: Sequence[Mapping[str, Any]],
    queries: Sequence[LinearQuery],
) -> list[Step]:
    """Returns the steps that choose m records and, if needed, count the records with noise.

    A score is the largest |m S(q) - N s(q, y)|, in units of 1 / d, for the sums S(q) over all N
    records and s(q, y) over m chosen records y. The k records of a unit move S by k d, under either
    relation, and therefore every score by m d k.
    """
    size = checked_integer("size", parameters.get("size"), 1, _MAX_SIZE)
    k = guarantee.max_records_per_unit
    moved = size * denominator_of(domain, queries) * k
    steps = []
    for entry in noise:
        check_fields("noise", entry, ("what", "distribution", "scale"))
        check_choice("what", entry["what"], (_CHOICE, NUM_RECORDS))
        check_choice("distribution", entry["distribution"], (_LAWS[entry["what"]],))
        # If two scales differ, the smaller scale is charged.
        name = _SCALES[entry["what"]]
        scale = min(map(positive, (entry["scale"], parameters.get(name) or entry["scale"])))
        if entry["what"] == NUM_RECORDS:
            steps.append(laplace_step("count the records", k, float(scale)))
        else:
            steps.append(selection_step(f"choose {size:,} records", moved, float(scale)))
    return steps


def denominator_of(domain: Domain, queries: Sequence[LinearQuery]) -> int:
    """Returns the least common denominator of the values of all queries at possible cells."""
    unit, possible = 1 << VALUE_BITS, domain.possible()
    common = unit
    for query in queries:
        values = np.rint(query.values()[possible] * unit).astype(np.int64)
        common = math.gcd(common, int(np.gcd.reduce(values)))
    return unit // common


def small_db_figures(release: SyntheticDatabase, figures: Figures) -> None:
    """Compares the scales, which the card states twice, and the bounds that follow."""
    parameters, k = release.plan, release.limited_guarantee.max_records_per_unit
    scales = [(_CHOICE, parameters["selection_scale"]), (NUM_RECORDS, parameters["total_scale"])]
    listed = [(entry["what"], entry["scale"]) for entry in release.noise]
    figures.equal("noise", listed, [each for each in scales if each[1] is not None])
    figures.equal("num_records", release.num_records_is_public, True)
    figures.equal("num_represented", release.num_represented is not None, True)
    figures.equal("num_queries", parameters.get("num_queries"), len(release.queries))
    figures.equal("size", parameters.get("size"), release.num_records)
    size, epsilon = parameters["size"], parameters["selection_epsilon"]
    denominator = denominator_of(release.domain, release.queries)
    figures.same(
        "selection_epsilon", epsilon, 2 * size * denominator * k / parameters["selection_scale"]
    )
    beta, share = parameters["failure_probability"], parameters["max_error_fraction"]
    total_scale, total = parameters.get("total_scale"), release.represented
    each_beta = beta if total_scale is None else beta / 2
    cells = np.count_nonzero(release.domain.possible())
    drawn = np.arange(size, dtype=np.float64)
    log_ways = float(np.log((cells + drawn) / (drawn + 1)).sum())
    bound = share * total + 2 * k / epsilon * (log_ways - math.log(each_beta))
    if total_scale is not None:
        bound += (1 + share) * math.ceil(total_scale * math.log(1 / each_beta))
    known = {"standard_error": None, "failure_probability": beta}
    for error in (release.query_error, *release.errors.values()):
        figures.same("bound of an answer", error.get("bound"), bound)
        figures.equal("error of an answer", {name: error.get(name) for name in known}, known)
    figures.equal("record_tables", release.record_tables, ((),))
    if total_scale is None:
        figures.same("bound", parameters["bound"], bound)
        figures.equal("bound_is_vacuous", parameters["bound_is_vacuous"], bound >= total)
