"""Adding up releases: laws of the filters, an independent recomputation, and a best adversary."""

import functools
import math
import random
import re
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.common import DifferentialPrivacyParameters
from hypothesis import given, settings
from test_ledger_pure_first import Step, reached, response, revealing

from beam_dp.privacy.accounting import discrete_gaussian_mu, gaussian_delta, zcdp_rho
from beam_dp.privacy.ledger import filters as ledger_filters
from beam_dp.privacy.ledger.filters import Account, Filter, limit
from beam_dp.privacy.loss import Loss, composed, loss_of

KINDS = ("pure", "gaussian", "zcdp")


def fill(account: Account, *losses: Loss) -> Account:
    """Spends the losses that fit, in order; skips the others."""
    for loss in losses:
        if account.fits(loss):
            kept = (*account.losses, loss)
            account = Account(account.epsilon, account.delta, account.composition, kept)
    return account


def normal(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.5, 1.0, 3.0, 20.0, 300.0])
def test_pure_privacy_implies_the_stated_mu_and_no_smaller_mu(epsilon):
    mu = Loss.pure(epsilon).mu
    assert mu is not None
    corner = 1 / (1 + math.exp(epsilon))
    assert normal(-mu / 2) <= corner * (1 + 1e-9)
    if corner > 1e-300:
        assert normal(-mu * (1 - 1e-6) / 2) > corner or epsilon < 1e-3


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_randomised_response_is_within_the_stated_mu(epsilon):
    """delta(e) of the pair (p, 1-p) against (1-p, p) is at most that of the Gaussian pair."""
    mu = Loss.pure(epsilon).mu
    assert mu is not None
    p = 1 / (1 + math.exp(-epsilon))
    for threshold in (0.0, 0.1, 0.5 * epsilon, 0.9 * epsilon, epsilon, 2 * epsilon):
        delta = max(0.0, p - math.exp(threshold) * (1 - p))
        assert delta <= gaussian_delta(mu, threshold) + 1e-15


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0, 9.0])
@pytest.mark.parametrize("order", [1.01, 2.0, 8.0, 200.0])
def test_randomised_response_is_within_the_stated_rho(epsilon, order):
    p = 1 / (1 + math.exp(-epsilon))
    # The sum of p^a q^(1-a) over both answers, in logarithms: q is p e^-epsilon.
    log_moment = math.log(p) + (order - 1) * epsilon
    log_moment += math.log1p(math.exp((1 - 2 * order) * epsilon))
    assert log_moment / (order - 1) <= order * Loss.pure(epsilon).rho * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_stored_loss_is_never_less_than_its_exact_bounds(seed):
    draws = random.Random(seed)

    def number() -> Fraction:
        return Fraction(draws.getrandbits(200) + 1, draws.getrandbits(draws.randint(1, 250)) + 1)

    for loss in (
        Loss(number(), number(), number(), number()),
        Loss.pure(number()),
        Loss.range_bounded(number()),
        Loss.gaussian(float(number())),
        composed([Loss.zcdp(0.01), Loss.approximate(0.3, 1e-9)]).repeated(draws.randint(1, 99)),
    ):
        stored = loss.in_doubles()
        assert stored.in_doubles() == stored and stored.covers(loss)
        for name in ("rho", "mu_squared", "epsilon", "slack"):
            exact, kept = getattr(loss, name), getattr(stored, name)
            if exact is None:
                assert kept is None
                continue
            # The next smaller double would be less than what is true.
            assert exact <= kept
            value = stored.to_json().get(name if name != "mu_squared" else "mu", 0.0)
            below = Fraction(math.nextafter(value, 0)) ** (1 + (name == "mu_squared"))
            assert not exact or below < exact


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 1000.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-9, 1e-12])
def test_one_release_may_spend_the_whole_budget(kind, epsilon, delta):
    loss = loss_of(kind, epsilon, delta)  # type: ignore[arg-type]
    account = Account(epsilon, delta, "auto")
    assert account.largest_epsilon(kind, delta) == pytest.approx(epsilon, rel=1e-6)  # type: ignore[arg-type]
    full = fill(account, loss)
    assert full.losses == (loss,)
    assert not full.fits(loss)
    assert full.spent_epsilon() == pytest.approx(epsilon, rel=1e-6)
    more = loss_of(kind, epsilon * 1.001, delta)  # type: ignore[arg-type]
    assert not account.fits(more)


def test_first_release_fixes_the_filter_for_all_later_releases():
    whole, small = Loss.gaussian(discrete_gaussian_mu(1.0, 1e-9)), Loss.gaussian(0.01)
    rounds = Loss.zcdp(zcdp_rho(0.1, 1e-9))
    auto = Account(1.0, 1e-9, "auto")
    assert fill(auto, whole).filters() == ("pure", "gaussian")
    assert fill(auto, small).filters() == ("pure", "zcdp")
    assert fill(auto, Loss.pure(1.0)).filters() == ("pure", "zcdp")
    # What the other filter alone would accept is refused.
    squares = discrete_gaussian_mu(1.0, 1e-9) ** 2 - 0.01**2
    rest = Loss.gaussian(math.sqrt(squares) * (1 - 1e-9))
    assert fill(Account(1.0, 1e-9, "gaussian"), small, rest).losses == (small, rest)
    assert fill(auto, small, rest).losses == (small,)
    assert not Account(1.0, 1e-9, "gaussian").fits(rounds)
    assert fill(auto, small, rounds).losses == (small, rounds)


epsilons = st.sampled_from([0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.9, 1.0, 1.7, 3.0])
loss_of = functools.cache(loss_of)
losses = st.one_of(
    epsilons.map(Loss.pure),
    epsilons.map(lambda epsilon: loss_of("gaussian", epsilon, 1e-9)),
    epsilons.map(lambda epsilon: loss_of("zcdp", epsilon, 1e-9)),
    st.builds(Loss.approximate, epsilons, st.sampled_from([1e-10, 3e-10, 6e-10, 1e-7, 3e-7])),
)
accounts = st.builds(
    Account,
    st.sampled_from([0.3, 1.0, 3.0]),
    st.sampled_from([0.0, 1e-6, 1e-9]),
    st.sampled_from(["pure_first", "auto", "zcdp", "gaussian", "with_slack"]),
)


def accepted(account: Account, offers: list[Loss]) -> list[Loss]:
    """The rule again, in decimals and by hand."""
    declared = account.composition in ("zcdp", "gaussian")
    chosen: str | None = account.composition if declared else None
    kept: list[Loss] = []
    reserved = account.delta / 2 if account.composition == "with_slack" else 0.0

    def within(values: list[float | None], power: int, most: float) -> bool:
        if any(value is None for value in values):
            return False
        total = sum((Fraction(value or 0) ** power for value in values), Fraction(0))
        return total <= Fraction(most) ** power

    num_before = 0  # pure releases before the filter, under pure_first
    for loss in offers:
        history = [*kept, loss]
        pure = within([each.epsilon for each in history], 1, account.epsilon * (1 + 1e-15))
        is_pure = loss.epsilon is not None and not loss.slack
        if account.composition == "pure_first" and num_before == len(kept) and is_pure:
            num_before += pure
            kept += [loss] * pure
            continue
        counted = history[num_before:]
        before = sum((Fraction(each.epsilon or 0) for each in kept[:num_before]), Fraction(0))
        epsilon = float(Fraction(account.epsilon) - before)
        if len(counted) == 1 and account.composition != "with_slack":
            slack = loss.slack or 0.0
            reserved = 0.0 if slack == 0 else account.delta / 2
            if slack > reserved:
                reserved = account.delta
        if not within([each.slack or 0.0 for each in history], 1, reserved * (1 + 1e-15)):
            continue
        rest = account.delta - reserved
        if rest == 0 or epsilon < 1e-6:
            fits = pure
        else:
            zcdp = within([each.rho for each in counted], 1, zcdp_rho(epsilon, rest))
            mu = discrete_gaussian_mu(epsilon, rest)
            gaussian = within([each.mu for each in counted], 2, mu)
            rule = chosen or ("gaussian" if gaussian and not zcdp else "zcdp")
            fits = pure or (zcdp if rule == "zcdp" else gaussian)
            if fits and len(counted) == 1:
                chosen = rule
        if fits:
            kept.append(loss)
    return kept


@given(accounts, st.lists(losses, max_size=30))
def test_filter_accepts_the_same_sequences_as_an_independent_computation(account, offers):
    full = fill(account, *offers)
    assert list(full.losses) == accepted(account, offers)
    assert 0 <= full.spent_epsilon() <= account.epsilon


@settings(max_examples=60)
@given(accounts, st.lists(losses, max_size=6), st.sampled_from(KINDS))
def test_largest_epsilon_fits_and_a_slightly_larger_one_does_not(account, offers, kind):
    account = fill(account, *offers)
    largest = account.largest_epsilon(kind, 1e-9)  # type: ignore[arg-type]
    if largest > 0:
        assert account.fits(loss_of(kind, largest, 1e-9))  # type: ignore[arg-type]
    more = max(largest * 1.0001, 1e-4 * account.epsilon)
    assert not account.fits(loss_of(kind, more, 1e-9))  # type: ignore[arg-type]


@settings(max_examples=25)
@given(accounts.filter(lambda account: account.delta > 0), st.lists(losses, min_size=1, max_size=8))
def test_independent_library_confirms_that_accepted_releases_fit_the_budget(account, offers):
    """The privacy loss distributions of releases fixed in advance, composed by dp-accounting."""
    kept = fill(account, *offers).losses
    squares = math.fsum(
        (loss.mu or math.sqrt(2 * loss.rho)) ** 2 for loss in kept if loss.epsilon is None
    )
    parts = [
        pld.from_privacy_parameters(
            DifferentialPrivacyParameters(loss.epsilon, loss.slack or 0.0),
            value_discretization_interval=1e-3,
        )
        for loss in kept
        if loss.epsilon is not None
    ]
    if squares > 0:
        parts.append(pld.from_gaussian_mechanism(squares**-0.5, value_discretization_interval=1e-3))
    if parts:
        composed = functools.reduce(lambda one, other: one.compose(other), parts)
        epsilon = composed.get_epsilon_for_delta(account.delta)
        assert epsilon <= account.epsilon + 1e-3 * (len(parts) + 1)


def best_adversary(account: Account, *steps: Step) -> float:
    return reached(account, steps, most=60)


@pytest.mark.parametrize("composition", ["auto", "zcdp", "gaussian"])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.05), (1.5, 0.01), (0.5, 0.1)])
def test_worst_case_adversary_stays_within_delta(composition, epsilon, delta):
    reached = best_adversary(Account(epsilon, delta, composition), response(0.1), response(0.3))
    assert reached <= delta


@pytest.mark.parametrize("composition", ["auto", "zcdp", "gaussian", "with_slack"])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.05), (1.5, 0.01), (0.5, 0.1)])
@pytest.mark.parametrize("share", [0.15, 0.5, 1.0])
def test_worst_case_adversary_with_slacks_stays_within_delta(composition, epsilon, delta, share):
    account = Account(epsilon, delta, composition)
    reached = best_adversary(account, response(0.2), revealing(share * delta, 1e-3))
    assert (share if account.fits(approximate(1e-3, share * delta)) else 0) * delta <= reached
    assert reached <= delta * (1 + 1e-9)


def test_worst_case_adversary_exceeds_delta_with_four_budgets(monkeypatch):
    def wrong(which: Filter, epsilon: float, delta: float) -> object:
        return 4 * limit(which, epsilon, delta)

    monkeypatch.setattr("beam_dp.privacy.ledger.filters.limit", wrong)
    assert best_adversary(Account(1.0, 0.05, "zcdp"), response(0.3)) > 0.05


def whole_delta_kept(account: Account, next_loss: Loss | None = None) -> float:
    return account.delta


def whole_delta_for_the_filter(account: Account, which: Filter, next_loss: Loss | None) -> Fraction:
    return limit(which, account.epsilon, account.delta)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("admits_slack", lambda account, loss: True, marks=pytest.mark.part),
        ("filters", lambda account, next_loss=None: ("pure", "zcdp")),
    ],
)
def test_worst_case_adversary_exceeds_delta_if_slacks_are_not_separate(monkeypatch, name, value):
    """Slacks that are not added up; and a whole delta for slacks and another for the filter."""
    if name == "filters":
        monkeypatch.setattr(Account, "slack_limit", whole_delta_kept)
        monkeypatch.setattr(Account, "_limit", whole_delta_for_the_filter)
    monkeypatch.setattr(Account, name, value)
    account = Account(1.0, 0.05, "zcdp")
    assert best_adversary(account, response(0.2), revealing(0.05, 0.05)) > 0.05 * 1.2


def test_stated_margin_covers_the_discreteness_of_all_releases():
    """Compares g in the module and ``Loss.gaussian`` with the proof's constants."""
    normaliser = 2 * sum(math.exp(-2 * math.pi**2 * 2.0**2 * k**2) for k in range(1, 5))
    grid = 3 * 2**28 * normaliser
    for text in (ledger_filters.__doc__, Loss.gaussian.__doc__):
        (stated,) = map(float, re.findall(r"g < (\S+)\s+for fewer than 2\^28", text or ""))
        assert grid < stated
        assert 2 * stated * ledger_filters.MAX_RELEASES < 1e-12 * ledger_filters.MIN_EPSILON


def test_pure_filter_accepts_exactly_the_stated_budget():
    most = Fraction(1.0) * (1 + Fraction(1, 2**50))
    assert limit("pure", 1.0, 1e-9) == most
    full = Account(1.0, 1e-9, "auto", (Loss.pure(0.5), Loss.pure(0.5)))
    assert full.left("pure") == most - 1
    assert not full.fits(Loss.pure(2.0**-49))
    slacks = [Loss.approximate(0.1, 1e-10)] * 10
    assert len(fill(Account(1.0, 2e-9, "with_slack"), *slacks).losses) == 10
    promised = "(epsilon (1 + 2^-50), delta (1 + 2^-50))"
    assert promised in (ledger_filters.__doc__ or "").replace("\n", " ")


approximate = Loss.approximate


@pytest.mark.parametrize(
    ("composition", "first", "kept"),
    [
        ("auto", Loss.pure(0.1), 0.0),
        ("auto", approximate(0.1, 1e-7), 0.5),
        ("zcdp", approximate(0.1, 5e-7), 0.5),
        ("gaussian", approximate(0.1, 6e-7), 1.0),
        ("auto", approximate(0.1, 1e-3), 1.0),
        ("with_slack", Loss.pure(0.1), 0.5),
        ("with_slack", approximate(0.1, 6e-7), 0.5),
    ],
)
def test_first_release_or_declaration_sets_the_delta_reserved_for_slacks(composition, first, kept):
    account = Account(1.0, 1e-6, composition)
    assert account.slack_limit(first) == kept * 1e-6
    assert account.fits(first) == ((first.slack or 0) <= kept * 1e-6)
    # Nothing that comes later changes it.
    for later in (Loss.pure(0.1), approximate(0.1, 1e-7)):
        after = Account(1.0, 1e-6, composition, (first,))
        assert after.slack_limit(later) == kept * 1e-6


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_approximately_private_laws_consist_of_a_pure_part_and_slack(epsilon):
    """The proof of ``Loss.approximate``, carried out on random pairs of laws."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        p, q = rng.dirichlet(np.full(5, 0.4), 2)
        factor = math.exp(epsilon)
        lost = [np.maximum(one - factor * other, 0).sum() for one, other in ((p, q), (q, p))]
        delta = max(lost) * rng.choice([1.0, 1.1])
        if delta >= 1:
            continue
        rest = [np.minimum(p, factor * q), np.minimum(q, factor * p)]
        if lost[0] > lost[1]:
            rest.reverse()
        small, large = rest[1], rest[0]
        scale = (1 - delta) / small.sum()
        small, large = small * scale, large * scale
        target, end = 1 - delta, small / factor
        share = (large.sum() - target) / (large.sum() - end.sum())
        large = (1 - share) * large + share * end
        for part in (small, large):
            assert part.sum() == pytest.approx(target, rel=1e-9)
            assert -1e-12 <= share <= 1 + 1e-12
        assert (large <= factor * small * (1 + 1e-9) + 1e-15).all()
        assert (small <= factor * large * (1 + 1e-9) + 1e-15).all()
        ends = (p, q) if lost[0] <= lost[1] else (q, p)
        assert (large <= ends[0] + 1e-12).all() and (small <= ends[1] + 1e-12).all()


@pytest.mark.parametrize("slack", [1e-7, 5e-7])
@pytest.mark.parametrize("composition", ["zcdp", "gaussian"])
def test_filter_has_only_the_delta_that_slacks_leave(composition, slack):
    """Half of delta is for slacks, whichever there are: the largest loss follows from the rest."""
    account = Account(1.0, 1e-6, composition, (Loss.approximate(1e-3, slack),))

    def largest(delta: float) -> Loss:
        if composition == "zcdp":
            return Loss.zcdp(zcdp_rho(1.0, delta) - 1e-6)
        return Loss.gaussian(discrete_gaussian_mu(1.0, delta) - 1e-4)

    assert account.fits(largest(0.5e-6)) and not account.fits(largest(0.55e-6))
