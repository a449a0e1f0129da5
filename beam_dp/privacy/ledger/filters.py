"""Privacy filters: decide adaptively whether one more release fits a budget.

An analyst looks at one release before asking for the next, so the parameters of a release may
depend on the noise of earlier releases. A *filter* is a stopping rule whose guarantee is valid even
so. A budget is a pair (epsilon, delta). Three filters keep a budget, for releases without slack
("Slack" below treats the other releases):

**pure**: all releases are purely private and their epsilons sum to at most epsilon. Step i changes
the probability of a transcript by a factor of at most e^epsilon_i, so all steps together change it
by at most e^epsilon.

**zcdp**: the rhos sum to at most R = ``zcdp_rho(epsilon, delta)``. For every order a > 1 the
product of (P_i/Q_i)^a exp(-a (a-1) rho_i) over the steps is a supermartingale under Q. When it
stops, the sum of rhos is at most R, so the Renyi divergence is at most a R (Feldman and Zrnic,
2021; Whitehouse, Ramdas, Rogers and Wu, 2023).

**gaussian**: all releases have a mu, and the squares of these mu sum to at most M^2, ``M =
discrete_gaussian_mu(epsilon, delta)``. A release of mu is a function of a Brownian motion with
drift 0 or 1 over a stretch of time mu^2 (Blackwell). The stretches are cut from one motion over
M^2, and the end of this motion contains all information about the drift: M-Gaussian privacy (Smith
and Thakurta, 2022; Koskela, Tobaben and Honkela, 2023). Discreteness changes probabilities by at
most a factor e^g per release, g < 1e-25 for fewer than 2^28 coordinates (``discrete_gaussian_mu``:
3 * 2^28 * 1.02e-34 is 8.3e-26). Over 2^20 releases this adds 2g 2^20 < 2.1e-19 to epsilon, less
than the relative margin of 1e-12 inside M, which is 1e-18 for epsilon >= 1e-6.

A release is accepted if the **pure** filter accepts the whole history including this release, or if
**one** other filter does, which is fixed before the first noise is drawn. Claim: this rule keeps
(epsilon, delta), except for the rounding below. Proof. A transcript that only the pure filter
accepts has P <= e^epsilon Q and adds nothing to the sum of (P - e^epsilon Q)+. The fixed filter
accepted all other transcripts and all their prefixes (costs only grow). These transcripts have the
same probabilities when only the fixed filter is used, so their sum is at most delta. Taking the
best of two filters that each use up delta would be wrong: the analyst's choice between the two
filters could double delta.

**Open runs.** An online run answers questions while other releases are drawn and other runs are
asked. A run is paid for as a whole before its first answer, its noise is independent, and its
claims hold for every sequence of questions. Claim: the three filters still keep their guarantee.
Proof. Let h be the questions and answers of a run so far, and P_i(h), Q_i(h) the probabilities of
these answers, given the questions, for the two neighbours. The probability of a transcript is the
product of these probabilities over all runs, times the probability of the analyst's actions, which
is the same for both neighbours. **pure**: P_i(h) <= e^epsilon_i Q_i(h), because an analyst may ask
exactly these questions; so the products differ by a factor of at most e^epsilon. **zcdp**: let
V_i(h) be the largest expectation under Q of (P_i/Q_i)^a over all later questions to run i after h,
at least 1; before the first question V_i is at most exp(a (a-1) rho_i). A question to run i changes
the product over the runs of (P_i/Q_i)^a V_i exp(-a (a-1) rho_i) in one factor, whose expectation
does not grow, because V_i is the expectation for the best question. Another run starts with a
factor of at most 1. So the product is again a supermartingale (Lyu, 2022; Haney and others, 2023).
**gaussian**: this filter admits only runs with a pure loss. With e = e^epsilon_i, M = (e P_i - Q_i)
/ (e - 1) and N = (e Q_i - P_i) / (e - 1) are never negative, and add up over the answers to a
question as P_i and Q_i do. So M and N are runs, too, and P_i = (e M + N) / (e + 1), Q_i = (M + e N)
/ (e + 1). The run may therefore draw one randomised response when it is paid for, and continue
without the records (Vadhan and Wang, 2021); this response is an ordinary release. A run that stops
early, or is never asked, costs the full price. If a run were charged only when it ended, it would
be free until then. Runs never have a slack. Releases of windows are drawn in parts, but no part
depends on the use of an earlier part: all parts together are one release.

The declaration names the fixed filter. Under ``auto`` the first release decides, because no earlier
release can have influenced it: the filter is ``zcdp``, which admits every mechanism, unless the
first release fits ``gaussian`` but not ``zcdp``.

**Pure releases first.** ``pure_first``, the default, adds up epsilons until the first release that
is not pure: one without an epsilon, or with a slack (below). Let e1 be the sum of the epsilons
before this release. From this release on, the rule above and the rule for slacks apply with the
budget (epsilon - e1, delta), as ``auto`` applies both rules from the first release on. This release
decides the fixed filter and the part for slacks, which then count this release and all later
releases (pure ones by rho or mu). ``pure`` still compares the sum of all epsilons with epsilon.
Claim: this keeps (epsilon, delta). Proof. The analyst's coins are the same for both neighbours, so
fix them. Let h be the outputs before the switch, or all outputs of a transcript without a switch.
No h is a prefix of another h, so each transcript has exactly one h. The choice of a release depends
only on the outputs before it. So h determines the epsilons of its releases, their sum e1(h) <=
epsilon, and the next release if it is not pure. So h also determines the filter, its limit and the
part for slacks, before any noise that the filter counts is drawn. The probabilities of each output
in h, given the earlier outputs, differ by a factor of at most e^epsilon_i, so P(h) <= e^e1(h) Q(h).
Given h, the later releases obey the rule for a budget that is now fixed: P(S | h) <= e^(epsilon -
e1(h)) Q(S | h) + delta for every set S of transcripts, trivially so if no release follows.
Therefore

    P(S) = sum over h of P(h) P(S | h)
        <= sum over h of P(h) (e^(epsilon - e1(h)) Q(S | h) + delta)
        <= sum over h of e^e1(h) Q(h) e^(epsilon - e1(h)) Q(S | h) + delta sum over h of P(h)
         = e^epsilon Q(S) + delta.

Both inequalities also hold with P and Q exchanged, under either neighbouring relation. Two kinds of
output may be paid for before the switch and shown after it; h contains this output completely,
which only reveals more. Windows are one release, in which no part depends on the use of earlier
parts. A pure run that is still open may, as shown above, draw a randomised response when it is paid
for and continue without the records: h contains the response, and the run's later answers are coins
of the analyst.

e1 must be fixed at the same time as the filter. If later pure releases were also subtracted from
the filter's epsilon, the analyst could choose that epsilon from the filter's own noise. The margin
of ``gaussian`` needs an epsilon of at least 1e-6: if epsilon - e1 is smaller, only ``pure``
applies, and releases without an epsilon are refused. epsilon - e1 is computed exactly and then
rounded down.

**Slack.** The claims of some releases hold except with a probability, the release's slack. A part r
of delta, fixed before the first noise is drawn, is kept for slacks. The slacks may sum to at most
r, whichever filter accepts. This is a plain sum, so each slack may depend on everything seen
before. The fixed filter has the rest of delta: its limit is the limit for (epsilon, delta - r).
With r = delta, only the pure filter applies. Claim: this keeps (epsilon, delta). Proof. A release
of slack s has the law (1 - s) P' + s P'' or (1 - s) Q' + s Q'', depending on the neighbour, and the
claims hold for P' and Q' (``Loss``). Let the transcript also contain the part that each release was
drawn from, which can only reveal more. By the union bound over the steps, the probability that at
least one release is drawn from its second part is at most E[sum of s] <= r. All other transcripts
have probabilities c P' and c Q' with the same c = product of (1 - s) <= 1, where P' and Q' are the
probabilities for releases without slack, which one filter of (epsilon, delta - r) accepted. So the
sum of (P - e^epsilon Q)+ is at most r + (delta - r). For zero-concentrated privacy, this is the
composition of Bun and Steinke (2016), Section 8, and the filter of Whitehouse et al. (2023).

r must not depend on noise either. If the filter had all of delta that the slacks leave over, an
analyst could reach almost 2 delta by spending slack only after favourable noise. r is half of delta
if the declaration says ``with_slack``. Otherwise the first release decides: r = 0 if the release
has no slack, r = delta / 2 if its slack is at most delta / 2, and r = delta if its slack is larger.

All sums are exact. Epsilons and slacks are numbers that users type, as doubles, so their sums may
exceed epsilon and r by one part in 2^50; otherwise ten releases of 0.1 would not fit a budget of 1.
The exact guarantee is therefore (epsilon (1 + 2^-50), delta (1 + 2^-50)): the transcripts that only
the pure filter accepts add only their slacks to the sum of (P - e^(epsilon (1 + 2^-50)) Q)+.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Literal

from beam_dp.checks import check_choice
from beam_dp.privacy.accounting import gaussian_delta, zcdp_epsilon
from beam_dp.privacy.guarantee import MAX_EPSILON, checked_delta
from beam_dp.privacy.loss import KINDS, Kind, Loss, loss_of
from beam_dp.privacy.rounding import down, down_to_digits, root_up, up

Filter = Literal["pure", "zcdp", "gaussian"]
Composition = Literal["pure_first", "auto", "zcdp", "gaussian", "with_slack"]

# The composition of a new budget by default. A budget's composition never changes later.
DEFAULT_COMPOSITION: Composition = "pure_first"
COMPOSITIONS: tuple[Composition, ...] = ("pure_first", "auto", "zcdp", "gaussian", "with_slack")
# The proof above assumes a largest number of releases and a smallest epsilon.
MAX_RELEASES = 2**20
MIN_EPSILON = 1e-6

# Per filter, the name of the quantity that it adds up.
UNITS: dict[Filter, str] = {"pure": "epsilon", "zcdp": "rho", "gaussian": "mu^2"}
_NEVER_ADMITTED = (("pure", "gaussian"), ("pure", "zcdp"), ("gaussian", "zcdp"))
_TYPED = 1 + Fraction(1, 2**50)
_LEAST_EPSILON = 1e-9  # an epsilon below this number counts as 0
# The largest epsilon that fits is reported slightly below the exact one.
_ROUNDED_DOWN = 1 - 1e-9


@lru_cache(maxsize=256)
def limit(which: Filter, epsilon: float, delta: float) -> Fraction:
    """Returns the limit of the filter's sum for an (epsilon, delta) budget."""
    whole = cost(which, loss_of(which, epsilon, delta))
    assert whole is not None
    return whole * _TYPED if which == "pure" else whole


def cost(which: Filter, loss: Loss) -> Fraction | None:
    """Returns a release's share of a filter's sum, without slack; None if the filter refuses."""
    return {"pure": loss.epsilon, "zcdp": loss.rho, "gaussian": loss.mu_squared}[which]


@dataclasses.dataclass(frozen=True)
class Account:
    """A budget, and the losses of the releases paid from this budget, in order."""

    epsilon: float  # the total, from 1e-6 to 1e6
    delta: float  # the total; 0 allows only pure releases
    composition: Composition
    losses: tuple[Loss, ...] = ()

    def filters(self, next_loss: Loss | None = None) -> tuple[Filter, ...]:
        """Returns the filters for a release with this loss; one of the filters must accept it."""
        first = self._first(next_loss)
        if self.slack_limit(next_loss) == self.delta or self._rest < MIN_EPSILON:
            return ("pure",)
        if self.composition in ("zcdp", "gaussian"):
            return ("pure", self.composition)
        if first is None:
            return ("pure",) if self.composition == "pure_first" else ("pure", "zcdp")
        only_gaussian = not self._is_within("zcdp", cost("zcdp", first), first) and self._is_within(
            "gaussian", cost("gaussian", first), first
        )
        return ("pure", "gaussian" if only_gaussian else "zcdp")

    def slack_limit(self, next_loss: Loss | None = None) -> float:
        """Returns the part of delta that is kept for slacks if the next release has this loss."""
        half = self.delta / 2
        if self.composition == "with_slack":
            return half
        first = self._first(next_loss)
        if first is None or not first.slack:
            return 0.0
        return half if first.slack <= half else self.delta

    def admits_slack(self, loss: Loss) -> bool:
        """Returns whether the slack of one more release fits."""
        return not loss.slack or loss.slack <= self._slack_left(loss)

    def largest_slack(self, next_loss: Loss | None = None) -> float:
        """Returns the remaining slack, rounded down to six digits.

        ``next_loss``: the loss of the next release; if it is None, the filter and the part of delta
        for slacks may still be undecided.
        """
        if self._first(next_loss) is None and self.composition != "with_slack":
            return self.delta
        left = self._slack_left(next_loss)
        if left < Fraction(self.delta) / 10**12:
            return 0.0  # only a rounding error is left
        typed = float(f"{float(left):.6g}")
        return typed if typed <= left else down_to_digits(float(left), 6)

    def _slack_left(self, next_loss: Loss | None) -> Fraction:
        return Fraction(self.slack_limit(next_loss)) * _TYPED - self._slack

    @cached_property
    def _slack(self) -> Fraction:
        return sum((loss.slack for loss in self.losses), Fraction(0))

    @cached_property
    def _counted(self) -> tuple[Loss, ...]:
        """The losses that the fixed filter adds up; ``pure_first`` skips the first pure losses."""
        if self.composition != "pure_first":
            return self.losses
        return tuple(itertools.dropwhile(_is_pure, self.losses))

    @cached_property
    def _before(self) -> Fraction:
        """The sum of the epsilons of the releases that the fixed filter does not count."""
        before = self.losses[: len(self.losses) - len(self._counted)]
        return sum((loss.epsilon or Fraction(0) for loss in before), Fraction(0))

    @cached_property
    def _rest(self) -> float:
        """The part of epsilon that remains for the fixed filter."""
        return down(Fraction(self.epsilon) - self._before)

    def _first(self, next_loss: Loss | None) -> Loss | None:
        """Returns the loss of the release that decides the fixed filter; None if undecided."""
        if self._counted:
            return self._counted[0]
        is_before = self.composition == "pure_first" and next_loss and _is_pure(next_loss)
        return None if is_before else next_loss

    def _limit(self, which: Filter, next_loss: Loss | None) -> Fraction:
        epsilon = self.epsilon if which == "pure" else self._rest
        return limit(which, epsilon, self.delta - self.slack_limit(next_loss))

    def _is_within(self, which: Filter, value: Fraction | None, next_loss: Loss) -> bool:
        return value is not None and value <= self._limit(which, next_loss)

    @cached_property
    def _spent(self) -> dict[Filter, Fraction | None]:
        sums: dict[Filter, Fraction | None] = {}
        for which in UNITS:
            counted = self.losses if which == "pure" else self._counted
            costs = [cost(which, loss) for loss in counted]
            finite = [amount for amount in costs if amount is not None]
            sums[which] = sum(finite, Fraction(0)) if len(finite) == len(costs) else None
        return sums

    def left(self, which: Filter, next_loss: Loss | None = None) -> Fraction:
        """Returns how much a filter's sum may still grow; 0 if the filter refuses the history."""
        spent = self._spent[which]
        if spent is None:
            return Fraction(0)
        return max(Fraction(0), self._limit(which, next_loss) - spent)

    def fits(self, loss: Loss) -> bool:
        """Returns whether one more release fits the budget."""
        return self.admits_slack(loss) and any(
            self._is_within(which, self._sum_with(which, loss), loss)
            for which in self.filters(loss)
        )

    def best(self, loss: Loss) -> Filter | None:
        """Returns the filter with the smallest sum relative to its limit; None if all refuse."""
        shares = [
            (value / self._limit(which, loss), which)
            for which in self.filters(loss)
            if (value := self._sum_with(which, loss)) is not None
        ]
        return min(shares)[1] if shares else None

    def _sum_with(self, which: Filter, loss: Loss) -> Fraction | None:
        """Returns a filter's sum with one more release; None if the filter can't count it."""
        spent, more = self._spent[which], cost(which, loss)
        return None if spent is None or more is None else spent + more

    def largest_epsilon(self, kind: Kind, delta: float) -> float:
        """Returns the largest epsilon, rounded down, that one more release may have, or 0."""
        check_choice("kind", kind, KINDS)
        delta = checked_delta(delta)
        if kind != "pure" and delta == 0:
            return 0.0
        filters = self.filters()
        is_before = self.composition == "pure_first" and kind == "pure"
        if (
            self._first(None) is None
            and not (self.composition in ("zcdp", "gaussian") or is_before)
            and self.delta > 0
            and self._rest >= MIN_EPSILON
        ):
            filters = ("pure", "zcdp", "gaussian")  # this release would decide the filter
        largest = max(self._largest_in(which, kind, delta) for which in filters)
        # A number that a user typed, such as the total budget, must not come back as 0.999999.
        typed = float(f"{largest:.6g}")
        if largest < 1e-12 * self.epsilon:
            return 0.0  # only a rounding error is left
        if abs(typed - largest) <= 1e-8 * largest and self.fits(loss_of(kind, typed, delta)):
            return typed
        return down_to_digits(largest, 6)

    def _largest_in(self, which: Filter, kind: Kind, delta: float) -> float:
        left = float(self.left(which)) * _ROUNDED_DOWN
        if left <= 0 or (which, kind) in _NEVER_ADMITTED:
            return 0.0
        if which == "pure":
            # Rounded down, this could refuse an epsilon that a user typed, such as the budget.
            return min(float(self.left("pure") / _TYPED), self.epsilon)
        mu = math.sqrt(2 * left) if which == "zcdp" else math.sqrt(left)
        if kind == "pure":
            return _largest(lambda epsilon: (cost(which, Loss.pure(epsilon)) or math.inf) <= left)
        if kind == "zcdp":
            return zcdp_epsilon(left, delta) * _ROUNDED_DOWN
        return gaussian_epsilon(mu, delta) * _ROUNDED_DOWN

    def spent_epsilon(self) -> float:
        """Returns the total epsilon of the paid releases at the budget's delta, rounded up.

        The paid releases would guarantee this epsilon if they had been fixed in advance. An
        adaptive sequence of releases only guarantees the budget itself.
        """
        if not self.losses:
            return 0.0
        epsilons = []
        # If this delta is used, it is at least half of the budget's delta: otherwise only ``pure``
        # applies.
        delta = down(Fraction(self.delta) - self._slack)
        for which in self.filters():
            spent = self._spent[which]
            if spent is None:
                continue
            if which == "pure":
                epsilons.append(up(spent))
                continue
            if which == "zcdp":
                epsilon = zcdp_epsilon(up(spent), delta)
            else:
                # This epsilon is exact up to the width of the last bracket of the bisection.
                epsilon = max(gaussian_epsilon(root_up(spent), delta), _LEAST_EPSILON)
            epsilons.append(up(self._before + Fraction(epsilon)))
        return min(min(epsilons) * (1 + 1e-12), self.epsilon) if epsilons else self.epsilon


def _is_pure(loss: Loss) -> bool:
    return loss.epsilon is not None and not loss.slack


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Returns the epsilon >= 0 of mu-Gaussian privacy at delta, up to bisection error."""
    return _largest(lambda epsilon: gaussian_delta(mu, epsilon) >= delta)


def _largest(holds: Callable[[float], bool]) -> float:
    """Returns the largest epsilon from 0 to 1e6 for which a condition is true, by bisection."""
    low, high = _LEAST_EPSILON, MAX_EPSILON
    if not holds(low):
        return 0.0
    if holds(high):
        return high
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
