"""Plans the release of a domain, and splits a guarantee between it and the release that uses it.

The values of open columns of text are found here, the bins of numbers in ``bins``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beam_dp.checks import check_is, checked_integer, checked_number
from beam_dp.domain.discover import GRID, DiscoverValues, OpenAttribute, OpenDomain
from beam_dp.domain.readings import LEAST_UNITS, READINGS
from beam_dp.errors import InputError, shown
from beam_dp.mechanisms.contract import EarlierPlan, Plan
from beam_dp.mechanisms.discovery.bins import BinsPlan, plan_bins
from beam_dp.mechanisms.marginals.plan import MarginalsPlan
from beam_dp.privacy.accounting import discrete_parameter
from beam_dp.privacy.budget import Budget
from beam_dp.privacy.discovery import least_threshold
from beam_dp.privacy.guarantee import MIN_EPSILON, Guarantee
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.noise.bound import noise_variance
from beam_dp.privacy.noise.source import MAX_SCALE, NoiseSource
from beam_dp.privacy.rounding import Real, down
from beam_dp.privacy.steps import Step, laplace_step, total
from beam_dp.releases.domain.release import MECHANISM, DomainRelease, Found
from beam_dp.releases.domain.verify import SLACK_SHARE, domain_steps, with_domain
from beam_dp.releases.earlier_stage import Discovered, hidden_units
from beam_dp.secret.encoding.open_values import OpenColumns
from beam_dp.secret.summaries.sparse_counts import ValueCounts
from beam_dp.views.domain import found_text
from beam_dp.views.terminal import short, some

# Finds the texts of a column that enough privacy units have.


DISTRIBUTION = "discrete_gaussian"


@dataclasses.dataclass(frozen=True)
class ValuesPlan:
    """Releases the texts of one column whose noisy sum of weights reaches a threshold; public.

    A unit with m different texts (of at most k kept records) adds w = floor(G / sqrt(m)) to the sum
    of each, in steps of 1 / G of a unit. Every text that any unit has gets discrete Gaussian noise.

    Privacy: mu-Gaussian privacy with mu^2 = moved G^2 / (scale^2 - 4), except with probability
    ``slack``, for the relation and the unit of the guarantee; moved is 1, or 2 under replace-one.

    * Let S be the texts that other units than the moved ones have, or that both neighbours have. On
      S, adding a unit moves the sums by at most w sqrt(m) <= G in L2 norm. Replacing a unit moves
      them by at most sqrt(2) G: where both units have a text, the weights partly cancel.
    * All other texts belong to one moved unit alone, in one of the neighbours. Their noise is
      independent of that of S. So, if none of them reaches the threshold, the release has exactly
      the law of the release of S, and this fails in either neighbour with probability at most
      ``slack`` (``discovery.alone_probability``). So the law of either neighbour is (1 - slack)
      times a law for which mu holds, plus the rest: this is ``Loss.slack``. Each neighbour has one
      moved unit, so the slack is not doubled under replace-one.
    * The texts that are released are at most ``max_values``, those with the largest noisy sums.
      This is a function of the noisy sums that reach the threshold.

    The slack covers this column. A unit may also be alone with k texts in every other open column,
    so the slacks of columns add up, as the squares of mu do.

    Accuracy: a text that u units have as their only text is released if u plus noise of standard
    deviation ``scale / G`` reaches ``threshold / G``. For the same mu, sums without weights need a
    noise sqrt(k) times as large. Laplace noise needs a higher threshold up to a mu of about 20,
    because its slack is ln(1 / slack), not its root, times the scale (see the tests).

    Reference: Korolova, Kenthapadi, Mishra and Ntoulas (2009) for the threshold; Gopi, Gulhane,
    Kulkarni, Shen, Shokouhi and Yekhanin (2020) for Gaussian noise with weights.
    """

    name: str
    num_moved: int
    max_records_per_unit: int
    max_values: int
    scale: float
    threshold: int
    slack: float
    grid: int = GRID

    def to_json(self) -> dict[str, Any]:
        """Returns the public fields of a card; scale and threshold in steps of 1 / grid."""
        return {
            "measured": self.name,
            "distribution": DISTRIBUTION,
            "max_values": self.max_values,
            "grid": self.grid,
            "scale": self.scale,
            "threshold": self.threshold,
            "slack": self.slack,
        }

    def release(
        self, texts: pa.Array, sums: NDArray[np.int64], noise: NoiseSource
    ) -> list[tuple[str, float]]:
        """Returns the found texts with their noisy sums in units, the largest sum first.

        ``texts``: every text that has a weight, once, as UTF-8; secret.
        ``sums``: the exact sums of ``encoding.open_values.kept_values``, shape (n,), int64; secret.

        Cost: that of ``NoiseSource.reaching``.
        """
        kept, noisy = noise.reaching("gaussian", sums, self.scale, self.threshold)
        pairs = zip((-noisy).tolist(), texts.take(pa.array(kept)).to_pylist(), strict=True)
        # Ties are broken by text, so the order in which workers found the texts has no influence.
        first = sorted(pairs)[: self.max_values]
        return [(text.decode(), -negative / self.grid) for negative, text in first]


def plan_values(
    name: str,
    guarantee: Guarantee,
    mu: Real,
    slack: float,
    max_values: int,
    *,
    grid: int = GRID,
) -> ValuesPlan:
    """Returns the plan for one column, with the column's own part of mu and of the slack.

    Raises:
        InputError: if delta is 0, or the part of the budget is too small for the noise.
    """
    if guarantee.delta == 0:
        condition = "must be > 0 to discover texts: a release shows which texts the records contain"
        raise InputError("delta", 0.0, condition)
    checked_number("mu", mu, above=0)
    checked_number("slack", slack, above=0, below=0.5)
    checked_integer("max_values", max_values, 1)
    moved, k = guarantee.neighboring.num_moved, guarantee.max_records_per_unit
    scale = discrete_parameter(moved * (grid / Fraction(mu)) ** 2)
    if not scale <= MAX_SCALE:
        condition = "is too small to discover texts: use a larger one"
        raise InputError("epsilon", guarantee.epsilon, condition)
    threshold = least_threshold(scale, slack, k, grid)
    if not threshold < 2**62:
        condition = "are too many to discover texts"
        raise InputError("max_records_per_unit", k, condition)
    return ValuesPlan(name, moved, k, max_values, scale, threshold, slack, grid)


def vote(plan: BinsPlan, counts: NDArray[np.int64], noise: NoiseSource) -> Found:
    """Returns the noisy numbers of units by reading of one column; its type follows from them.

    Each value votes for its narrowest reading of the public list ``READINGS``, which depends on
    this value alone; a missing one does not vote. A unit votes with at most k records, and each of
    its n votes weighs floor(G / n), in steps of 1 / G of a unit. Every reading of the list gets
    noise of its own, also one that no value has. ``type_of`` states the accuracy.

    Privacy: that of ``plan``, a histogram of one level: mu-Gaussian privacy with mu^2 = moved G^2 /
    (scale^2 - 4), for the relation and the unit of the guarantee; moved is 1, or 2 under
    replace-one. The weights of a unit add up to at most G, so adding it moves the sums by at most
    G in L1 norm, and therefore in L2 norm. No weight is negative, so replacing a unit moves the
    sums by at most sqrt(2) G. There is no threshold, and no slack.

    ``counts``: the sums of weights in grid steps, shape (len(READINGS),), int64; secret.
    """
    noisy = noise.gaussian(counts, plan.scale) / plan.grid
    return Found(tuple(READINGS), noisy, np.full(len(noisy), plan.noise_deviation))


# The share of the budget for a domain: of mu^2, or of epsilon if delta is 0. A column of texts gets
# so many times the part of a column of bins. Chosen by the errors of whole copies
# (benchmarks/undescribed_tables.py): a larger share finds better bins and more texts, but makes the
# later release worse.
DEFAULT_SHARE = 0.3
_TEXT_WEIGHT = 2
MAX_SHARE = 0.5
TYPES_SHARE = 0.05  # for types, beside that: an equal part for each column without one
_FIXED_BYTES = 2**28
# Numbers of units for which a preview says what is found.
_EXAMPLE_ROWS = (300, 3_000, 30_000)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class DomainPlan(EarlierPlan):
    """The plan of the release of a domain, whose budget is a share of a whole guarantee.

    Privacy: for the relation and the unit of the guarantee, by composition. Every open attribute
    is released by a mechanism of its own (``plan_values``, ``plan_bins``), with a part of the
    domain's share; all read the same records. With delta > 0, the losses are Gaussian: the
    squares of their mu and that of the later release add up to at most the square of the mu of
    (epsilon, delta - s), where s is the slack: half of delta if texts are found, otherwise 0. The
    thresholds of all texts together have at most this slack. If the later release is purely
    private (``main`` has delta 0), its epsilon and that of the domain at delta add up instead. With
    delta 0, all epsilons add up, and only bins can be found.

    The found values and edges are inputs of the later release, so the sum is valid because every
    loss is one that composes adaptively.

    ``guarantee``: of the domain alone; ``main``: of the later release alone; ``whole``: of both.
    """

    what: ClassVar[str] = "domain"
    done: ClassVar[str] = "found the levels of the domain"
    kind: ClassVar[type[DomainRelease]] = DomainRelease

    domain: OpenDomain
    share: float
    main: Guarantee
    parts: tuple[ValuesPlan | BinsPlan, ...]
    types: Discovered | None = None  # the release of types before this one

    @property
    def asked_by(self) -> tuple[str, list[str]]:
        """The argument that asks for this release, with its value."""
        return "domain", [column.name for column in self.domain.open]

    @property
    def headline(self) -> str:
        """A short description of the run."""
        names = [column.name for column in self.domain.open]
        more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
        return f"discovery of {', '.join(names[:3])}{more}"

    @property
    def facts(self) -> dict[str, str]:
        """The lines of a preview about this release."""
        split = (
            f"{100 * self.share:g} % of the budget: epsilon {self.guarantee.epsilon:.4g} finds"
            f" them, epsilon {self.main.epsilon:.4g} with delta {self.main.delta:g} is left for the"
            " release"
        )
        sought = {f"of {names}": text for names, text in self.sought.items()}
        other = "which share of the records will be in other is not known before the release"
        return {"to discover": split, **sought, "in other": other}

    @cached_property
    def noise(self) -> tuple[dict[str, Any], ...]:
        """The noise of each open attribute, as the card states it."""
        named = zip(self.domain.open, self.parts, strict=True)
        return tuple({**part.to_json(), "measured": column.measured} for column, part in named)

    @cached_property
    def sought(self) -> dict[str, str]:
        """What may be found at some numbers of units, by names of attributes."""
        names: dict[str, list[str]] = {}
        for attribute, noise in zip(self.domain.open, self.noise, strict=True):
            names.setdefault(_sought(attribute, noise), []).append(attribute.name)
        return {some(group): text for text, group in names.items()}

    @cached_property
    def shared(self) -> Discovered:
        """What the later release is planned with before the domain is drawn."""
        return Discovered(whole=self.whole, main=self.main, noise=self.noise, types=self.types)

    @property
    def columns(self) -> OpenColumns:
        """The columns to count."""
        texts = [attribute.texts for attribute in self.domain.open if attribute.has_values]
        leaves = [attribute.leaves for attribute in self.domain.open if not attribute.has_values]
        return OpenColumns(self.domain.declared, texts, leaves)

    @property
    def steps(self) -> Sequence[Step]:
        """See ``Plan``."""
        return domain_steps(self.noise, self.whole)

    @property
    def memory_bytes(self) -> float:
        """See ``Plan``; how many texts there are is not known beforehand."""
        return float(_FIXED_BYTES)

    def result_text(self, release: Any) -> str:
        """Returns what was found, in one line."""
        return found_text(release)

    def identity(self) -> dict[str, Any]:
        """See ``Plan``."""
        described = {"domain": self.domain.to_json(), "parameters": self.public}
        return {**super().identity(), **described, "noise": list(self.noise)}

    def _stated(self) -> dict[str, Any]:
        release = {"epsilon": self.main.epsilon, "delta": self.main.delta}
        types = {} if self.types is None else {"types": self.types.to_json()}
        whole = self.whole.to_json()
        return {"domain_share": self.share, "release": release, "whole": whole, **types}

    def release(self, counts: ValueCounts, noise: NoiseSource) -> DomainRelease:
        """Returns the domain; the only function that turns exact sums of values into a release.

        ``counts``: exact sums of the weights of values; secret.
        """
        discoveries = []
        for attribute, part in zip(self.domain.open, self.parts, strict=True):
            if isinstance(part, ValuesPlan):
                pairs = part.release(*counts.texts[attribute.name], noise)
                texts = tuple(text for text, _ in pairs)
                sums = np.array([count for _, count in pairs], np.float64)
                error = math.sqrt(noise_variance("discrete_gaussian", part.scale)) / part.grid
                discoveries.append(Found(texts, sums, np.full(len(sums), error)))
            elif not attribute.has_type:
                discoveries.append(vote(part, counts.leaves[attribute.name], noise))
            else:
                bins = part.release(counts.leaves[attribute.name], noise)
                edges = attribute.edges_at(_usable_cuts(attribute, bins.cuts))
                numbers = (np.array(column) for column in (bins.counts, bins.standard_errors))
                discoveries.append(Found(tuple(edges), *numbers))
        return DomainRelease(
            draw_id=noise.draw_id(),
            guarantee=self.guarantee,
            open_domain=self.domain,
            found=discoveries,
            noise=self.noise,
            plan=self.public,
        )


class TypesPlan(DomainPlan):
    """The plan of the release of types, which comes first.

    Privacy: as of ``DomainPlan``. ``main`` is the guarantee of all that follows, at the delta that
    the thresholds of texts leave, because any column may be text.
    """

    what: ClassVar[str] = "types"
    done: ClassVar[str] = "found the types of columns"

    @property
    def facts(self) -> dict[str, str]:
        """The lines of a preview about this release."""
        names = some([column.name for column in self.domain.open])
        least = LEAST_UNITS * max(getattr(part, "noise_deviation", 0.0) for part in self.parts)
        text = f"{100 * self.share:g} % of the budget finds those of {names}; with fewer than"
        return {"types": f"{text} about {least:,.0f} units they become text, as is planned here"}


def _sought(attribute: OpenAttribute, noise: Mapping[str, Any]) -> str:
    """Returns what may be found for an attribute."""
    if isinstance(attribute.discover, DiscoverValues):
        least = noise["threshold"] / noise["grid"]
        limit = attribute.discover.max_values
        return f"at most {limit:,} values that about {least:,.0f} or more units have"
    hidden = hidden_units(noise)
    shares = [
        f"{short(float(f'{100 * min(hidden / rows, 1):.2g}'))} % of {rows:,}"
        for rows in _EXAMPLE_ROWS
    ]
    assert attribute.discover is not None
    return (
        f"at most {attribute.discover.bins:,} bins; about {hidden:,.0f} units beyond each end are"
        f" counted in the last bin: {', '.join(shares)} units"
    )


def _usable_cuts(attribute: OpenAttribute, cuts: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the cuts; for one bin of a column without a range, a bin at 0 instead of all numbers.

    So if noise hides everything, released numbers are not drawn from a range of 10^12.
    """
    edges = attribute.leaves.edges
    has_range = getattr(attribute.discover, "low", None) is not None
    if has_range or cuts != (0, len(edges) - 1):
        return cuts
    zero = edges.index(0)
    return zero - 1, zero + 1


def plan_domain(
    domain: OpenDomain,
    guarantee: Guarantee,
    share: float | None = None,
    *,
    later_is_pure: bool = False,
    types: Discovered | None = None,
) -> DomainPlan:
    """Returns the plan of the release of a domain, for a share of a guarantee (``DomainPlan``).

    If columns lack a type, this is the plan of the release of types, which comes first.

    Args:
        domain: the domain with the attributes to discover.
        guarantee: the guarantee of the release of the domain and the later release together.
        share: the domain's share of the budget, > 0 and at most 0.5: of mu^2, or of epsilon if
            delta is 0. By default 30 %.
        later_is_pure: whether the later release gets a pure guarantee, which is better for few
            tables; always so if delta is 0.
        types: ``discovered`` of the release that found types, if the guarantee covers it, too.

    Raises:
        InputError: if the domain is not open, texts are to be found with delta 0, or the budget is
            too small.
    """
    check_is("domain", domain, OpenDomain)
    check_is("guarantee", guarantee, Guarantee)
    share = DEFAULT_SHARE if share is None else share
    checked_number("domain_share", share, above=0, most=MAX_SHARE)
    build, share = (TypesPlan, TYPES_SHARE) if domain.lacks_types else (DomainPlan, share)
    of_types = 0.0 if types is None else TYPES_SHARE
    texts = [column for column in domain.open if not column.has_bins]  # or what may be texts
    if texts and guarantee.delta == 0:
        condition = (
            f"must be > 0 to discover texts of {shown(texts[0].name)}: a released text proves that"
            " a record has it. With 0, declare that it has numbers or dates, or list its values"
        )
        raise InputError("delta", guarantee.delta, condition)
    slack = guarantee.delta * SLACK_SHARE if texts or types is not None else 0.0
    # The difference is exact: the slack is 0 or half of delta.
    budget = Budget.of(guarantee.with_limits(delta=guarantee.delta - slack))
    main, rest = budget.split(share + of_types)
    rest = budget.part(share) if domain.lacks_types else rest - budget.part(of_types)
    if not (main.epsilon > MIN_EPSILON and rest.amount > 0):
        condition = "is too small to also discover a domain: use a larger one"
        raise InputError("epsilon", guarantee.epsilon, condition)
    weights = [_TEXT_WEIGHT if attribute.has_values else 1 for attribute in domain.open]
    parts: list[ValuesPlan | BinsPlan] = []
    for attribute, weight in zip(domain.open, weights, strict=True):
        part = rest.part(Fraction(weight, sum(weights))).level
        if isinstance(attribute.discover, DiscoverValues):
            delta = down(Fraction(slack) / len(texts))
            limit = attribute.discover.max_values
            parts.append(plan_values(attribute.name, guarantee, part, delta, limit))
        else:
            bins, moved = getattr(attribute.discover, "bins", len(READINGS)), guarantee.neighboring
            mu, epsilon = (None, part) if rest.kind == "pure" else (part, None)
            parts.append(plan_bins(attribute.leaves, bins, moved, mu=mu, epsilon=epsilon))
    plan = build(
        mechanism=MECHANISM,
        guarantee=guarantee,
        loss=Loss.nothing(),
        domain=domain,
        share=share,
        whole=guarantee,
        main=main,
        parts=tuple(parts),
        types=types,
    )
    together, epsilon = total(plan.steps, guarantee)
    alone = guarantee.with_limits(epsilon=epsilon)
    if later_is_pure and guarantee.delta > 0 and not domain.lacks_types:
        _, epsilon = total(domain_steps(plan.shared.all_noise, guarantee), guarantee)
        left = down(Fraction(guarantee.epsilon) - Fraction(epsilon))
        main = guarantee.with_limits(epsilon=max(left, MIN_EPSILON), delta=0.0)
    plan = dataclasses.replace(plan, guarantee=alone, main=main, loss=together.loss)
    return dataclasses.replace(plan, paid=(guarantee, total_loss(plan.shared)))


def plans_before(
    domain: OpenDomain,
    guarantee: Guarantee,
    share: float | None = None,
    later_is_pure: bool = False,
    types: Discovered | None = None,
) -> tuple[DomainPlan, ...]:
    """Returns the plans of the releases of types, if columns lack them, and of the domain."""
    first = (plan_domain(domain, guarantee, share),) if domain.lacks_types else ()
    types = first[0].shared if first else types
    plan = plan_domain(domain.typed(), guarantee, share, later_is_pure=later_is_pure, types=types)
    return *first, plan


def total_loss(discovered: Discovered) -> Loss:
    """Returns the loss of the domain's release and of the later release together.

    This is the loss of a release that spends the whole guarantee in the same way, which is a little
    more than the sum of the losses of both. It depends on the guarantees alone.
    """
    whole, main = discovered.whole, discovered.main
    if main.delta == 0 < whole.delta:
        return Loss.approximate(whole.epsilon, whole.delta)
    loss = Budget.of(whole.with_limits(delta=main.delta)).loss
    return dataclasses.replace(loss, slack=Fraction(whole.delta) - Fraction(main.delta))


def paid_alone(plan: MarginalsPlan) -> MarginalsPlan:
    """Returns the plan of a later release that is paid for apart from the release of its domain."""
    discovered, left_out = plan.discovered, plan.left_out
    assert discovered is not None
    if left_out is not None:
        left_out = dataclasses.replace(left_out, guarantee=discovered.main)
    loss = Budget.of(discovered.main).loss
    return dataclasses.replace(
        plan, discovered=None, records_per_unit=None, left_out=left_out, loss=loss
    )


def check_together(plan: Plan, discovered: Discovered) -> None:
    """Refuses a plan for ``discovered.main`` that breaks the whole guarantee with the domain."""
    if not Budget.of(discovered.main).loss.covers(plan.loss):
        condition = (
            "must have a loss that adds up with that of the domain, whose attributes are to be"
            " discovered: use mwem, gaussian or laplace, tight, or small_db"
        )
        raise InputError("mechanism", plan.mechanism, condition)
    beside: list[Step] = []
    if plan.left_out is not None:
        beside = [laplace_step("count", plan.left_out.sensitivity, plan.left_out.scale)]
    steps, beside = with_domain(discovered, plan.steps, beside)
    _, epsilon = total(steps, discovered.whole, beside)
    if not epsilon <= discovered.whole.epsilon:
        condition = f"must keep the whole guarantee, epsilon {discovered.whole.epsilon:.6g}"
        raise InputError("mechanism", plan.mechanism, condition)
