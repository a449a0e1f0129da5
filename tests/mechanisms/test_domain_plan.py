"""The plan of a domain: how a guarantee is split, and that both parts keep it together."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from noise_sources import NoNoise
from open_domains import CITY, INCOME, SEX, guarantee, open_domain

import beam_dp as dp
from beam_dp.errors import InputError
from beam_dp.mechanisms.discovery.plan import (
    BINS_SHARE,
    check_together,
    main_loss,
    plan_domain,
    total_loss,
)
from beam_dp.mechanisms.registry import ReleaseOptions, plan_discovery, plan_release
from beam_dp.privacy.guarantee import PrivacyWarning
from beam_dp.privacy.ledger.entries import Token
from beam_dp.privacy.ledger.filters import Account
from beam_dp.privacy.loss import Loss
from beam_dp.releases.domain.verify import domain_steps
from beam_dp.summaries.value_counts import ValueCounts
from beam_dp.verification.steps import total

GRID = 2**20
BINS = [{**INCOME, "name": name} for name in "ab"]


def plan_of(domain: dp.OpenDomain, promise: dp.Guarantee, **options: object):
    """Returns the plans of a domain and of the release that follows."""
    plan = plan_domain(domain, promise)
    asked = ReleaseOptions(discovered=plan.shared, **options)
    workload = dp.marginals(domain, ways=2)
    return plan, plan_release(dp.MWEM(), domain.bounded(), workload, promise, asked)


@settings(max_examples=10, deadline=None)
@given(
    epsilon=st.floats(0.01, 20),
    power=st.integers(5, 15),
    share=st.floats(0.001, 0.5),
    texts=st.integers(0, 3),
    bins=st.integers(0, 3),
    neighboring=st.sampled_from(["add_or_remove_one", "replace_one"]),
    most=st.integers(1, 5),
)
def test_the_parts_add_up_to_the_whole_guarantee(
    epsilon, power, share, texts, bins, neighboring, most
) -> None:
    entries = [{**CITY, "name": f"t{n}"} for n in range(texts)]
    entries += [{**INCOME, "name": f"b{n}"} for n in range(bins)]
    if not entries:
        return
    promise = guarantee(epsilon, 10.0**-power, neighboring=neighboring, max_records_per_unit=most)
    plan = plan_domain(open_domain(*entries), promise, share)
    slack = promise.delta / 2 if texts else 0.0
    assert plan.main.delta == promise.delta - slack
    loss = total_loss(plan.shared)
    assert loss.slack <= Fraction(slack)
    assert loss.slack >= Fraction(slack) * 9 / 10  # no threshold is higher than it needs to be
    _, proved = total(plan.steps, promise)
    assert proved == plan.guarantee.epsilon
    stated = dataclasses.replace(plan.steps[0], loss=main_loss(plan.shared))
    _, together = total([*plan.steps, stated], promise)
    assert 0.999 * epsilon <= together <= epsilon
    mu_squared = float(plan.loss.mu_squared / loss.mu_squared)
    assert mu_squared == pytest.approx(share, rel=1e-3)


def test_a_ledger_with_exactly_this_budget_pays_for_both() -> None:
    for domain in (open_domain(), open_domain(INCOME, SEX)):
        _, main = plan_of(domain, guarantee())
        account = Account(1.0, 1e-9, "pure_first")
        assert account.fits(main.loss.in_doubles())
        spent = Account(1.0, 1e-9, "pure_first", (main.loss.in_doubles(),))
        assert spent.largest_epsilon("gaussian", 1e-9) == 0


def test_a_ledger_without_slack_refuses_before_anything_is_read() -> None:
    plain = Loss.gaussian(0.01)
    _, main = plan_of(open_domain(), guarantee())
    account = Account(10.0, 1e-6, "pure_first", (plain,))
    assert not account.fits(main.loss.in_doubles())
    assert Account(10.0, 1e-6, "with_slack", (plain,)).fits(main.loss.in_doubles())


def test_pure_bins_take_a_share_of_epsilon() -> None:
    promise = guarantee(2.0, 0.0)
    plan, main = plan_of(open_domain(*BINS, SEX), promise)
    assert (plan.main.epsilon, plan.main.delta) == (2.0 * (1 - BINS_SHARE), 0.0)
    assert plan.guarantee.epsilon == pytest.approx(2.0 * BINS_SHARE)
    assert main.loss.epsilon is not None
    assert float(main.loss.epsilon) <= 2.0
    assert main.loss.slack == 0


def test_a_column_of_texts_gets_eight_parts_and_others_one() -> None:
    first, *others = plan_domain(open_domain(CITY, *BINS, SEX), guarantee()).steps
    for step in others:
        ratio = float(first.loss.mu_squared / step.loss.mu_squared)
        assert ratio == pytest.approx(8, rel=1e-6)


def test_the_later_release_keeps_its_part_and_both_keep_the_whole() -> None:
    promise = guarantee()
    plan, main = plan_of(open_domain(), promise, count_left_out=True)
    assert main.promised == promise
    assert main.guarantee.epsilon < plan.main.epsilon < promise.epsilon
    assert main.loss == total_loss(plan.shared)
    assert main.entry()["discovered"] == plan.shared.to_json()


def test_a_release_with_the_whole_budget_breaks_the_guarantee() -> None:
    """The mutant that forgets what the domain costs."""
    plan = plan_domain(open_domain(), guarantee())
    domain = open_domain().bounded()
    whole = plan_release(dp.Gaussian(), domain, dp.marginals(domain, ways=2), guarantee())
    with pytest.raises(InputError, match="adds up with that of the domain"):
        check_together(whole, plan.shared)
    greedy = dataclasses.replace(plan.shared, main=guarantee(1.0, 5e-10))
    again = plan_release(dp.Gaussian(), domain, dp.marginals(domain, ways=2), greedy.main)
    with pytest.raises(InputError, match="must keep the whole guarantee"):
        check_together(again, greedy)


def test_mwem_measures_with_gaussian_noise_where_laplace_would_not_add_up() -> None:
    domain = open_domain(CITY)
    small = dp.marginals(domain.bounded(), ways=1)
    alone = plan_release(dp.MWEM(), domain.bounded(), small, guarantee(5.0, 1e-9))
    assert alone.loss.kind == "pure"  # Laplace noise is best for one table
    promise = guarantee(5.0, 1e-9)
    plan = plan_domain(domain, promise)
    options = ReleaseOptions(discovered=plan.shared)
    both = plan_release(dp.MWEM(), domain.bounded(), small, promise, options)
    assert (both.mechanism, both.measurements[0].distribution) == ("mwem", "discrete_gaussian")


def test_a_mechanism_whose_loss_does_not_add_up_is_refused() -> None:
    domain = open_domain()
    asked = domain, dp.marginals(domain, ways=2), guarantee()
    with pytest.raises(InputError, match="use mwem, gaussian or laplace, tight"):
        plan_discovery(dp.Gaussian(calibration="textbook"), *asked)


def test_a_pure_release_of_few_tables_adds_its_epsilon_to_that_of_the_domain() -> None:
    domain = open_domain()
    workload = dp.marginals(domain, ways=2)
    for mechanism in (dp.MWEM(), dp.Laplace()):
        first, later = plan_discovery(mechanism, domain, workload, guarantee())
        gaussian = plan_domain(domain, guarantee())
        assert first.noise == gaussian.noise  # the domain is as exact
        assert (later.guarantee, later.guarantee.delta) == (first.main, 0)
        assert first.main.epsilon + first.guarantee.epsilon == pytest.approx(1.0, abs=1e-9)
        assert first.main.epsilon + first.guarantee.epsilon <= 1.0
        assert later.loss == Loss.approximate(1.0, 1e-9) == total_loss(first.shared)
        assert Account(1.0, 1e-9, "pure_first").fits(later.loss.in_doubles())
    many = open_domain(CITY, SEX, *({**SEX, "name": f"s{place}"} for place in range(12)))
    first, later = plan_discovery(dp.MWEM(), many, dp.marginals(many, ways=2), guarantee())
    assert (later.loss.kind, first.main.delta) == ("gaussian", 5e-10)


def test_a_release_that_a_ledger_pays_for_leaves_room_for_more() -> None:
    domain = open_domain()
    asked = dp.MWEM(), domain, dp.marginals(domain, ways=2), guarantee()
    first, later = plan_discovery(*asked, is_paid=True)
    assert (later.loss.kind, first.main.delta) == ("gaussian", 5e-10)
    account = Account(3.0, 1e-6, "pure_first", (later.loss.in_doubles(),))
    assert account.largest_epsilon("gaussian", 1e-9) > 1
    pure = Account(3.0, 1e-6, "pure_first", (plan_discovery(*asked)[1].loss.in_doubles(),))
    assert pure.largest_epsilon("gaussian", 1e-9) < account.largest_epsilon("gaussian", 1e-9)


def test_a_pure_release_with_more_than_the_rest_of_epsilon_is_refused() -> None:
    domain = open_domain()
    first = plan_domain(domain, guarantee(), later_is_pure=True)
    greedy = dataclasses.replace(first.shared, main=guarantee(0.9, 0.0))
    workload = dp.marginals(domain, ways=2)
    plan = plan_release(dp.Laplace(), domain.bounded(), workload, greedy.main)
    with pytest.raises(InputError, match="must keep the whole guarantee"):
        check_together(plan, greedy)


def test_a_token_must_have_paid_for_both_parts() -> None:
    plan, main = plan_of(open_domain(), guarantee())
    both = Token("visits", 3, "mwem", guarantee(), main.loss)
    assert plan.paid_by(both).public["ledger_release"] == "visits/3"
    assert main.paid_by(both).public["ledger_release"] == "visits/3"
    for wrong in (
        Token("visits", 3, "mwem", guarantee(), plan.loss),
        Token("visits", 3, "mwem", plan.guarantee, main.loss),
    ):
        with pytest.raises(InputError, match="ledger_token"):
            plan.paid_by(wrong)


def test_a_large_epsilon_warns() -> None:
    plan = plan_domain(open_domain(), guarantee(20.0))
    with pytest.warns(PrivacyWarning, match="epsilon 20"):
        plan.paid_by(None)


@pytest.mark.parametrize("discover", [{"bins": 4}, {"bins": 4, "min": -1024, "max": 1024}])
@pytest.mark.parametrize("whole", [False, True])
def test_a_column_without_a_range_in_which_nothing_is_found_has_a_bin_at_0(discover, whole) -> None:
    domain = open_domain({**INCOME, "discover": discover, "whole": whole}, SEX)
    plan = plan_domain(domain, guarantee())
    nothing = np.zeros(plan.columns.leaves[0].num_levels, np.int64)
    income = plan.release(ValueCounts({}, {"income": nothing}), NoNoise()).domain["income"]
    low, high = income.ends
    assert (low, high) == (-1024, 1024) if "min" in discover else -1 <= low < 0 < high <= 1


def test_the_release_holds_what_the_mechanisms_let_pass() -> None:
    plan = plan_domain(open_domain(), guarantee(100.0))
    texts = pa.array([b"Bonn", b"Nowhere", b"Oslo"], pa.large_binary())
    sums = np.array([300, 1, 200]) * GRID
    leaves = np.zeros(plan.columns.leaves[0].num_levels, np.int64)
    leaves[:100] = 5 * GRID
    drawn = plan.release(ValueCounts({"city": (texts, sums)}, {"income": leaves}), NoNoise())
    assert drawn.found[0].values == ("Bonn", "Oslo")
    assert drawn.found[0].counts.tolist() == [300, 200]
    assert drawn.domain["city"].labels() == ("Atlantis", "Bonn", "Oslo", "other")
    assert drawn.domain["income"].num_levels <= 4
    assert drawn.discovered.main == plan.main
    assert [step.loss for step in domain_steps(drawn.noise, guarantee())] == [
        step.loss for step in plan.steps
    ]
    assert dp.verify_release(drawn).holds
