"""The strategies of mechanisms for synthetic databases: their parameters, and their steps.

A plan has the parameters of its strategy as a field, its card states them, and verification reads
them from the card. The steps are computed here, from the noise that is stated and from the public
numbers that bound its sensitivity: the mechanisms choose that noise by other arithmetic, from the
guarantee, and state their loss themselves. So a mistake in the arithmetic of a plan is seen twice:
before the payment, where ``check_promise`` compares the steps of the plan with its guarantee and
its loss, and whenever ``verify`` computes the steps of the card.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

import numpy as np

from beam_dp.checks import check_choice, checked_integer, checked_number
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import RECORD, Guarantee, Neighboring
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.noise.bound import Distribution
from beam_dp.privacy.rounding import root_up, up
from beam_dp.privacy.steps import (
    Step,
    above,
    comparisons_step,
    flip_step,
    gaussian_vector,
    laplace_step,
    noise_step,
    positive,
    repeated,
    selection_step,
)
from beam_dp.privacy.unit_costs import MAX_RECORDS
from beam_dp.queries.linear import VALUE_BITS, LinearQuery
from beam_dp.releases.synthetic_database.measured_tables import (
    MAX_GRID,
    MeasuredTable,
    table_steps,
    tables_of,
)
from beam_dp.releases.synthetic_database.release import NUM_RECORDS
from beam_dp.releases.verdict import MAX_SIZE, Figures, check_fields

_ZERO = Fraction(0)
# The rounding error of sums of spent units.
_ROUNDING = 1e-9
# Fields beside the parameters: a ledger's entry, public records to start from, and the window of a
# database.
_OTHER_FIELDS = ("ledger_release", "records_per_unit_from", "start_from", "windows")


@dataclasses.dataclass(frozen=True)
class Drawn:
    """What a card states of a draw, or a plan before the draw.

    ``guarantee``: of the mechanism alone. ``noise``: the entries of the card.
    ``queries``: linear queries, if they are not all cells of marginals.
    ``fit``: the card's statements about the fit; None for a plan.
    """

    domain: Domain
    guarantee: Guarantee
    noise: Sequence[Mapping[str, Any]]
    queries: Sequence[LinearQuery] = ()
    fit: Mapping[str, Any] | None = None

    @property
    def tables(self) -> list[MeasuredTable]:
        """The measured tables."""
        return tables_of(self.noise, self.domain)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Strategy(ABC):
    """The public parameters of a strategy: its fields are those of the card, in the same order.

    A field with the default None or 0 is optional: the card leaves it out if it has this value.
    """

    is_fixed: ClassVar[bool] = False  # whether what is measured is decided before the draw

    calibration: str = "tight"
    strategy: str = ""

    @abstractmethod
    def steps(self, drawn: Drawn, figures: Figures) -> list[Step]:
        """Returns the steps of the strategy, from the stated noise; compares other figures."""

    def check(self) -> None:
        """Raises InputError if a field that was read from a card has another type or range."""
        check_choice("calibration", self.calibration, ("tight", "textbook"))

    @classmethod
    def _optional(cls) -> dict[str, Any]:
        """Returns the defaults of the optional fields."""
        fields = dataclasses.fields(cls)
        return {field.name: field.default for field in fields if field.default in (None, 0)}

    def to_json(self) -> dict[str, Any]:
        """Returns the parameters as the card states them."""
        optional, fields = self._optional(), dataclasses.asdict(self)
        return {
            name: value
            for name, value in fields.items()
            if name not in optional or value != optional[name]
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Returns the parameters of a card; raises InputError if they are not of this strategy."""
        optional, names = cls._optional(), [field.name for field in dataclasses.fields(cls)]
        needed = [name for name in names if name not in optional]
        check_fields("parameters", fields, needed, (*optional, *_OTHER_FIELDS))
        for name, default in optional.items():
            if name in fields and fields[name] == default:
                condition = "must be left out, or have another value"
                raise InputError(f"parameters.{name}", default, condition)
        strategy = cls(**{name: fields[name] for name in names if name in fields})
        strategy.check()
        return strategy


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureAll(Strategy):
    """A fixed set of tables, all measured at once."""

    is_fixed: ClassVar[bool] = True

    strategy: str = "measure_all"
    max_unit_cost: float | None = None  # the limit C on the cost of a unit's records
    num_measurements: int
    predicted_cell_error: float  # root mean squared, before the fit, in records

    def check(self) -> None:
        """See ``Strategy``."""
        super().check()
        if self.max_unit_cost is not None:
            checked_number("max_unit_cost", self.max_unit_cost, least=1)

    def steps(self, drawn: Drawn, figures: Figures) -> list[Step]:
        """See ``Strategy``."""
        tables, guarantee = drawn.tables, drawn.guarantee
        figures.equal("num_measurements", self.num_measurements, len(tables))
        limit, kinds = self.max_unit_cost, {(table.kind, table.distribution) for table in tables}
        if limit is not None:
            records = guarantee.max_records_per_unit
            checked_integer("max_records_per_unit", records, math.ceil(limit), MAX_RECORDS)
            if guarantee.neighboring is not Neighboring.ADD_OR_REMOVE_ONE:
                raise InputError("max_unit_cost", limit, "can't limit a unit that is replaced")
            if guarantee.privacy_unit == RECORD:
                raise InputError("max_unit_cost", limit, "can't limit a unit that is one record")
            if kinds - {("residual", "discrete_gaussian")}:
                condition = "can only limit residuals with Gaussian noise"
                raise InputError("max_unit_cost", limit, condition)
        return table_steps(drawn.domain, tables, guarantee, max_unit_cost=limit)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rounds(Strategy):
    """Rounds that each select a marginal and measure all of its cells.

    The scales are those of a round that spends one unit of the budget.
    ``selection``: the mechanism that selects. For the same epsilon, permute-and-flip is never worse
    than the exponential mechanism, but costs more if rhos add up.
    ``selection_scale``: the scale of the selection's coins or noise, in records.
    ``total_scale``: the scale of the noise of the total, in units of 1 / ``grid``; 0 without noise.
    """

    strategy: str = "rounds"
    num_rounds: int | Literal["annealed"]
    num_units: int  # the units of budget that all rounds together spend
    selection: Literal["permute_and_flip", "exponential_mechanism"]
    selection_scale: float
    distribution: Distribution
    grid: int  # the number of grid units of one record
    measurement_scale: float
    total_scale: float

    def check(self) -> None:
        """See ``Strategy``."""
        super().check()
        checked_integer("num_units", self.num_units, 1)
        check_choice("selection", self.selection, ("permute_and_flip", "exponential_mechanism"))
        checked_integer("grid", self.grid, 1, MAX_GRID)
        checked_number("total_scale", self.total_scale, least=0)

    def steps(self, drawn: Drawn, figures: Figures) -> list[Step]:
        """See ``Strategy``.

        A round of n units costs as much as n rounds of one unit, in epsilon or in mu^2, for any
        annealed schedule. So the proved loss follows from the scales of one unit and from the
        number of units; the measured tables must not cost more.
        """
        guarantee = drawn.guarantee
        moved, k = guarantee.neighboring.num_moved, guarantee.max_records_per_unit
        # A replacement moves a table by k in two cells, so it moves an L1 distance by 2 k.
        select = flip_step if self.selection == "permute_and_flip" else selection_step
        selections = select("select a marginal", moved * k, self.selection_scale, self.num_units)
        l1, l2_squared = moved * k * self.grid, moved * (k * self.grid) ** 2

        def measure(what: str, scale: float) -> Step:
            return noise_step(what, self.distribution, l1, l2_squared, scale)

        one = measure("measure the selected one", self.measurement_scale)
        steps = [selections, repeated(one, self.num_units)]
        totals = [self.total_scale] if self.total_scale else []
        if drawn.fit is not None:
            tables = drawn.tables
            # If two scales differ, the smaller scale is charged. Each listed total is charged.
            totals = [min([table.scale, *totals]) for table in tables if not table.names]
            unpaid = self._unpaid(tables, figures)
            steps += [measure("measure what the rounds do not pay for", scale) for scale in unpaid]
        count = "count the records"
        return [noise_step(count, self.distribution, l1, l1**2, scale) for scale in totals] + steps

    def _unpaid(self, tables: Sequence[MeasuredTable], figures: Figures) -> list[float]:
        """Compares the tables with the paid units; returns their scales if they cost more."""
        rounds = [table for table in tables if table.names]
        is_counted = bool(self.total_scale)
        figures.equal("noise of the total, entries", len(tables) - len(rounds), int(is_counted))
        for table in tables:
            kind = (table.kind, table.distribution, table.grid)
            figures.equal("noise", kind, ("table", self.distribution, self.grid))
            if not table.names:
                figures.same("scale of the total", table.scale, self.total_scale)
        spent = sum(self._units(table.scale) for table in rounds)
        figures.at_least("noise: units of the tables", spent, 0, self.num_units)
        if self.num_rounds != "annealed":
            figures.equal("num_rounds", self.num_rounds, len(rounds))
            for table in rounds:
                figures.same("scale of a round", table.scale, self.measurement_scale)
        is_paid = spent <= self.num_units * (1 + _ROUNDING)
        return [] if is_paid else [table.scale for table in rounds]

    def _units(self, scale: float) -> float:
        """Returns the units of budget that a table of a scale spends."""
        unit = self.measurement_scale
        if self.distribution == "discrete_laplace":
            return unit / scale
        return (unit**2 - 4) / (scale**2 - 4) if scale > 2 else math.inf


@dataclasses.dataclass(frozen=True, kw_only=True)
class Textbook(Strategy):
    """Hardt, Ligett and McSherry's algorithm, with one cell per round; scales are in records.

    ``bound_of_average``: on the largest error of the average hypothesis, in records.

    A noisy comparison may end the rounds at the first selected cell with an error below
    ``stop_below``, a share of the records. The threshold and each question have noise, and
    ``score_grid`` units per record. ``bound_when_stopped``: a bound on the largest error of any
    cell, in records, that is true with the stated probability for the last hypothesis.
    """

    calibration: str = "textbook"
    strategy: str = "textbook"
    num_rounds: int
    distribution: Distribution
    measurement_scale: float  # of a measured cell
    selection_scale: float
    bound_of_average: float | None
    bound_of_average_is_vacuous: bool
    stop_below: float = 0.0
    stop_threshold_scale: float = 0.0
    stop_question_scale: float = 0.0
    score_grid: int = 0
    bound_when_stopped: float = 0.0
    failure_probability: float = 0.0
    num_updates: int | None = None  # of the drawn release

    def check(self) -> None:
        """See ``Strategy``."""
        super().check()
        checked_integer("num_rounds", self.num_rounds, 1)
        scales = self.stop_threshold_scale, self.stop_question_scale
        bounds = self.bound_when_stopped, self.failure_probability
        if self.stop_below:
            checked_integer("score_grid", self.score_grid, 1, MAX_GRID)
            checked_integer("num_updates", self.num_updates, 0)
        elif any((*scales, *bounds, self.score_grid)) or self.num_updates is not None:
            raise InputError("parameters.stop_below", None, "must be stated")

    def steps(self, drawn: Drawn, figures: Figures) -> list[Step]:
        """See ``Strategy``.

        A unit moves a cell by at most k records, under either relation, and so does the error of
        the cell. The error may be compared with a threshold before the cell is measured; the first
        comparison above the threshold ends all rounds.
        """
        if drawn.noise:
            condition = "must be empty: no table is measured whole"
            raise InputError("noise", len(drawn.noise), condition)
        k = drawn.guarantee.max_records_per_unit
        one = noise_step("measure it", self.distribution, k, k**2, self.measurement_scale)
        selected = selection_step("select a cell", k, self.selection_scale, self.num_rounds)
        steps = [selected, repeated(one, self.num_rounds)]
        if self.stop_below:
            compare = comparisons_step(
                threshold_scale=self.stop_threshold_scale,
                question_scale=self.stop_question_scale,
                redraws=False,
                k=k,
                most=1,
            )
            steps.insert(1, compare)
        return steps


@dataclasses.dataclass(frozen=True)
class Check:
    """A check that chooses and adds sets of attributes, and what it may spend.

    ``choice_scale``: the scale of the exponential mechanism, in records.
    ``choice_share, added_share``: fractions of mu^2 for a choice and for measuring the chosen set.
    ``most_by_scores``: how many of the first choices follow from published scores alone.
    """

    size: int  # the number of attributes of a set: 2 or 3
    most_choices: int
    choice_share: float
    choice_scale: float
    added_share: float
    most_by_scores: int = 0

    @property
    def added(self) -> str:
        """The name of the number of added sets, in a card's statements about the fit."""
        return "num_added_pairs" if self.size == 2 else "num_added_triples"

    def num_by_noise(self, number: int) -> int:
        """Returns how many of some choices noise makes."""
        return max(number - self.most_by_scores, 0)

    def step(self, guarantee: Guarantee, number: int = 1) -> Step:
        """Returns the step of some choices that noise makes."""
        # A record, even one that replaces another, moves the largest distance of a cell of a pair
        # by at most 1. The score of a triple is a sum over cells; a replacement moves two cells.
        moved = 1 if self.size == 2 else guarantee.neighboring.num_moved
        what = "choose a pair that was left out" if self.size == 2 else "choose a triple"
        k = guarantee.max_records_per_unit
        return selection_step(what, moved * k, self.choice_scale, number)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Selection(Strategy):
    """Pairs of attributes that noisy scores select, and checks that add pairs and triples.

    Shares are fractions of mu^2. The choices and measurements after the scores share
    ``attributes_mu`` and ``pairs_mu``: noise determines their numbers. If the workload has
    triples, a check may add some of them; if there are public records, a noisy sum of distances,
    in units of 1 / ``prior_grid``, decides whether they are used.
    """

    strategy: str = "selection"
    num_candidates: int  # the number of scored pairs
    max_tree_cells: int
    attributes_share: float
    scores_share: float
    score_deviation: float  # of the noise of a score, in records
    score_grid: int
    score_scale: float  # in units of 1 / ``score_grid``
    attributes_mu: float
    pairs_mu: float
    most_choices: int  # for this and the next four, see ``Check``
    choice_share: float
    choice_scale: float
    added_share: float
    most_by_scores: int = 0
    num_triples: int = 0  # that may be chosen
    num_triple_cells: int = 0
    most_triple_choices: int = 0
    triple_choice_share: float = 0.0
    triple_choice_scale: float = 0.0
    triple_added_share: float = 0.0
    prior_share: float = 0.0
    prior_grid: int = 0
    prior_scale: float = 0.0

    @property
    def checks(self) -> tuple[Check, ...]:
        """The checks, in the order of their measurements."""
        pairs = Check(
            size=2,
            most_choices=self.most_choices,
            choice_share=self.choice_share,
            choice_scale=self.choice_scale,
            added_share=self.added_share,
            most_by_scores=self.most_by_scores,
        )
        if not self.num_triples:
            return (pairs,)
        triples = Check(
            size=3,
            most_choices=self.most_triple_choices,
            choice_share=self.triple_choice_share,
            choice_scale=self.triple_choice_scale,
            added_share=self.triple_added_share,
        )
        return pairs, triples

    @property
    def shares(self) -> dict[str, float]:
        """The shares of what is spent before the checks."""
        shares = {"attributes_share": self.attributes_share, "scores_share": self.scores_share}
        return shares | ({"prior_share": self.prior_share} if self.prior_scale else {})

    def check(self) -> None:
        """See ``Strategy``."""
        super().check()
        checked_integer("num_candidates", self.num_candidates, 0)
        checked_integer("num_triples", self.num_triples, 0)
        checked_integer("num_triple_cells", self.num_triple_cells, 0)
        if self.num_candidates:
            checked_number("score_deviation", self.score_deviation, above=0)
            checked_integer("score_grid", self.score_grid, 1)
        if self.prior_scale:
            checked_integer("prior_grid", self.prior_grid, 1, MAX_GRID)
        elif self.prior_share or self.prior_grid:
            raise InputError("parameters.prior_scale", None, "must be stated")
        triples = self.num_triple_cells, self.most_triple_choices, self.triple_choice_scale
        if not self.num_triples and any((*triples, self.triple_choice_share)):
            raise InputError("parameters.num_triples", None, "must be stated")
        checked_integer("most_by_scores", self.most_by_scores, 0)
        for name, value in self.to_json().items():
            if name.endswith("_share"):
                checked_number(name, value, above=0, below=1)
            elif name.endswith("_choices"):
                checked_integer(name, value, 0)
            elif name.endswith("_mu"):
                checked_number(name, value, above=0)

    def steps(self, drawn: Drawn, figures: Figures) -> list[Step]:
        """See ``Strategy``.

        The scores are one vector, checks make choices, and all other steps measure residuals.
        Noise determines the number of choices and the measured pairs, so the card states how much
        the choices and measurements may spend together. The actual loss must not exceed this
        amount.
        """
        domain, guarantee, tables = drawn.domain, drawn.guarantee, drawn.tables
        # Every measured pair was scored.
        measured_pairs = sum(len(table.names) == 2 for table in tables)
        figures.at_least("num_candidates", self.num_candidates, measured_pairs)
        triples = [
            domain.restrict(table.names).num_cells for table in tables if len(table.names) > 2
        ]
        figures.at_least("num_triples", self.num_triples, len(triples))
        figures.at_least("num_triple_cells", self.num_triple_cells, sum(triples))
        scores = self._score_steps(guarantee, figures)
        self._share_figures(drawn, tables, scores, figures)
        choices = []
        for check in self.checks:
            number = check.most_choices  # a plan states the largest number of choices
            if drawn.fit is not None:
                number = checked_integer(check.added, drawn.fit.get(check.added), 0)
                figures.at_least("choices of a check", check.most_choices, number)
            by_noise = check.num_by_noise(number)
            choices += [check.step(guarantee, by_noise)] if by_noise else []
        # Choices and measurements share a mu^2. Noise splits it, so all of it is charged, in rho
        # too.
        whole = Fraction(self.attributes_mu) ** 2 + Fraction(self.pairs_mu) ** 2
        squares = whole - sum((step.loss.mu_squared or _ZERO for step in choices), _ZERO)
        rho = whole / 2 - sum((step.loss.rho or _ZERO for step in choices), _ZERO)
        # A plan lists what is measured first, a card all that was measured.
        bound = Fraction(self.attributes_mu) ** 2 if drawn.fit is None else squares
        measured = [
            _reserved(step, squares, rho, figures, bound)
            for step in table_steps(domain, tables, guarantee)
        ]
        return [*measured, *scores.values(), *choices]

    def _score_steps(self, guarantee: Guarantee, figures: Figures) -> dict[str, Step]:
        """Returns the steps of scores and distances, by the names of their shares."""
        pairs, grid = self.num_candidates, self.score_grid
        moved = guarantee.neighboring.num_moved * guarantee.max_records_per_unit
        steps = {}
        if pairs:
            what, l2_squared = f"score {pairs:,} pairs", moved**2 * pairs
            steps["scores_share"] = gaussian_vector(what, l2_squared * grid**2, self.score_scale)
            figures.same("score_deviation", self.score_deviation, self.score_scale / grid)
        if self.prior_scale:
            # The distances of all pairs are added up, and a record moves each distance.
            what, l1 = "compare public records", moved * max(pairs, 1) * self.prior_grid
            steps["prior_share"] = gaussian_vector(what, l1**2, self.prior_scale)
        return steps

    def _share_figures(
        self,
        drawn: Drawn,
        tables: Sequence[MeasuredTable],
        scores: Mapping[str, Step],  # by the names of their shares
        figures: Figures,
    ) -> None:
        """Compares the shares of mu^2 with the amount that each step may spend."""
        shares = self.shares
        whole = Fraction(self.attributes_mu) ** 2 / Fraction(self.attributes_share)
        rest = 1 - sum((Fraction(share) for share in shares.values()), _ZERO)
        pairs = float(Fraction(self.pairs_mu) ** 2)
        figures.same("pairs_mu", pairs, float(whole * rest))
        spent = []
        for check in self.checks:
            if drawn.fit is not None:
                _added_figures(check, drawn, tables, float(whole) * check.added_share, figures)
            step = check.step(drawn.guarantee)
            spent.append((f"choice_share, {step.what}", check.choice_share, step))
        spent += [(name, shares[name], step) for name, step in scores.items()]
        for name, share, step in spent:
            squared_mu, epsilon = step.loss.mu_squared, step.loss.epsilon or _ZERO
            least = math.inf if squared_mu is None else up(squared_mu / whole)
            # A choice is planned by its range, also where its pure epsilon has a smaller mu.
            largest = max(least, up(Fraction(math.pi / 8) * epsilon**2 / whole))
            figures.at_least(name, share, least, largest)


def _added_figures(
    check: Check,
    drawn: Drawn,
    tables: Sequence[MeasuredTable],
    squared_mu: float,
    figures: Figures,
) -> None:
    """Compares the number of added sets with how many sets were measured alone at the end."""
    assert drawn.fit is not None
    added = 0
    for table in reversed([table for table in tables if len(table.names) <= check.size]):
        (step,) = table_steps(drawn.domain, [table], drawn.guarantee)
        of_table = step.loss.mu_squared
        if (
            len(table.names) != check.size
            or of_table is None
            or not math.isclose(up(of_table), squared_mu, rel_tol=1e-9)
        ):
            break
        added += 1
    figures.equal(f"fit.{check.added}", drawn.fit.get(check.added), added)


def _reserved(
    step: Step, squares: Fraction, rho: Fraction, figures: Figures, bound: Fraction
) -> Step:
    """Returns the step with the reserved loss, or with the actual loss if that is larger."""
    actual = step.loss.mu_squared
    assert step.loss.rho is not None
    # What was measured proves no epsilon either: with other noise it had been something else.
    loss = Loss(rho=max(step.loss.rho, rho))
    if actual is None:
        return dataclasses.replace(step, loss=loss)
    figures.at_least("noise: mu", root_up(actual), 0, root_up(max(bound, _ZERO)))
    loss = dataclasses.replace(loss, mu_squared=max(actual, squares))
    numbers = f"{step.numbers}, of {above(squares)} reserved"
    return dataclasses.replace(step, numbers=numbers, loss=loss)


_CHOICE = "choice of the records"
_LAWS = {_CHOICE: "exponential", NUM_RECORDS: "discrete_laplace"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmallDatabase(Strategy):
    """A few records, chosen by the exponential mechanism to answer all queries."""

    strategy: str = "small_db"
    sized_by: str  # the rule that gave the size, or ``explicit``
    max_error_fraction: float  # the largest error of the best records, as a fraction of all records
    num_queries: int
    sampler: str
    sampler_arithmetic: str
    sampler_time_depends_on_data: bool
    size: int  # m, the number of records that are released
    num_distinct_queries: int
    num_distinct_columns: int
    num_multisets: str  # in short: it may have too many digits for a card
    selection_scale: float
    selection_epsilon: float  # the part of epsilon that the choice of the records spends
    total_scale: float | None  # of the noise of the number of records; None if it is public
    failure_probability: float
    vc_dimension: int | None = None  # of the queries; None if some values are not 0 or 1
    vc_dimension_at_least: int | None = None
    vc_dimension_by: str | None = None
    bound: float | None = None  # on all errors, in records; None if the number of records is noisy
    bound_is_vacuous: bool | None = None

    def check(self) -> None:
        """See ``Strategy``."""
        super().check()
        checked_integer("size", self.size, 1, MAX_SIZE)

    @property
    def scales(self) -> list[tuple[str, float]]:
        """The scales of the noise by what is drawn, as the card lists them."""
        scales = [(_CHOICE, self.selection_scale), (NUM_RECORDS, self.total_scale)]
        return [(what, scale) for what, scale in scales if scale is not None]

    @property
    def noise(self) -> list[dict[str, Any]]:
        """The entries of the card."""
        return [
            {"what": what, "distribution": _LAWS[what], "scale": scale}
            for what, scale in self.scales
        ]

    def steps(self, drawn: Drawn, figures: Figures) -> list[Step]:
        """See ``Strategy``: m records are chosen and, if needed, all records counted with noise.

        A score is the largest |m S(q) - N s(q, y)|, in units of 1 / d, for the sums S(q) over all N
        records and s(q, y) over m chosen records y. The k records of a unit move S by k d, under
        either relation, and therefore every score by m d k.
        """
        k = drawn.guarantee.max_records_per_unit
        moved = self.size * denominator_of(drawn.domain, drawn.queries) * k
        scales, steps = dict(self.scales), []
        for entry in drawn.noise:
            check_fields("noise", entry, ("what", "distribution", "scale"))
            what = entry["what"]
            check_choice("what", what, _LAWS)
            check_choice("distribution", entry["distribution"], (_LAWS[what],))
            # If two scales differ, the smaller scale is charged.
            scale = float(min(map(positive, (entry["scale"], scales.get(what) or entry["scale"]))))
            if what == NUM_RECORDS:
                steps.append(laplace_step("count the records", k, scale))
            else:
                steps.append(selection_step(f"choose {self.size:,} records", moved, scale))
        return steps


def denominator_of(domain: Domain, queries: Sequence[LinearQuery]) -> int:
    """Returns the least common denominator of the values of all queries at possible cells."""
    unit, possible = 1 << VALUE_BITS, domain.possible()
    common = unit
    for query in queries:
        values = np.rint(query.values()[possible] * unit).astype(np.int64)
        common = math.gcd(common, int(np.gcd.reduce(values)))
    return unit // common


# The mechanisms whose cards state one of these strategies.
MECHANISMS = ("mwem", "small_db", "laplace", "gaussian")
STRATEGIES: dict[Any, type[Strategy]] = {
    kind.strategy: kind for kind in (MeasureAll, Rounds, Selection, SmallDatabase, Textbook)
}


def strategy_of(fields: Mapping[str, Any]) -> Strategy | None:
    """Returns the parameters of a card; None if this version does not know their strategy."""
    name = fields.get("strategy")
    kind = STRATEGIES.get(name) if isinstance(name, str) else None
    return None if kind is None else kind.from_json(fields)


def strategy_steps(strategy: Strategy | None, drawn: Drawn, figures: Figures) -> list[Step]:
    """Returns the steps of a strategy; if it is unknown, those of the measured tables."""
    if strategy is not None:
        return strategy.steps(drawn, figures)
    if not drawn.noise:
        raise InputError("noise", 0, "must state the tables that were measured")
    return table_steps(drawn.domain, drawn.tables, drawn.guarantee)
