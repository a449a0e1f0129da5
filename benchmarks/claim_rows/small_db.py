"""What is published of small databases: sizes, error, privacy, and how many queries n allows."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from itertools import combinations_with_replacement, product

import numpy as np
from claim_rows.claim import Agreement, Claim, Failures, Slack, failures
from claim_rows.published import published_small_db_error, sharper_small_db_theorem
from numpy.typing import NDArray
from scipy.stats import binom

from beam_dp.mechanisms.small_db.choice import MultisetChoice
from beam_dp.mechanisms.small_db.enumerated import EnumerationSampler
from beam_dp.mechanisms.small_db.size import (
    log_num_multisets,
    num_multisets,
    small_db_error,
    small_db_size,
)
from beam_dp.planning.theorems.synthesis import small_db_theorem
from beam_dp.planning.theorems.theorem import Calibration, Theorem, queries_allowed
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.testing.audit import Law, audit_law, neighbouring_units

_BETA = 0.05
_CALIBRATIONS: tuple[tuple[Calibration, int], ...] = (("textbook", 3), ("tight", 1))
_RELATIONS = ("add_or_remove_one", "replace_one")
# Tables of queries over two to four cells: one, a chain, and two that cross.
_TINY = (
    np.array([[0, 1]]),
    np.tri(3, dtype=np.int64),
    np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]]),
)


def _data(num_cells: int, num_records: int, seed: int) -> NDArray[np.int64]:
    """Counts of cells, from even to almost all records in one."""
    generator = np.random.default_rng(seed)
    shares = generator.dirichlet(np.full(num_cells, (3.0, 0.5, 0.05)[seed % 3]))
    return generator.multinomial(num_records, shares)


def _predicates(num_cells: int) -> NDArray[np.int64]:
    """All queries with values 0 and 1, one a row."""
    return np.array(list(product((0, 1), repeat=num_cells)), np.int64)


def _losses(mechanism: MultisetChoice, counts: NDArray[np.int64]) -> dict[tuple[int, ...], float]:
    """What the worst query of each multiset of cells is wrong by, in records."""
    law = mechanism.law(counts)
    kind_of = {int(cell): kind for kind, cells in enumerate(law.members) for cell in cells}
    targets, unit = np.array(law.targets, np.int64), mechanism.size * mechanism.denominator
    return {
        cells: float(np.abs(targets - law.answers[:, [kind_of[x] for x in cells]].sum(1)).max())
        / unit
        for cells in combinations_with_replacement(range(len(kind_of)), mechanism.size)
    }


def _law(mechanism: MultisetChoice, counts: NDArray[np.int64]) -> Law:
    """The exact output law of the mechanism, from the noise that it says it has."""
    losses = _losses(mechanism, counts)
    scale = mechanism.public["selection_scale"] / (mechanism.size * mechanism.denominator)
    logits = -np.array(list(losses.values())) / scale
    weights = np.exp(logits - logits.max())
    return dict(zip(losses, (weights / weights.sum()).tolist(), strict=True))


def _best_databases(trials: int) -> Slack:
    """The worst that the best multiset of the tight size misses, of what it may."""
    del trials
    worst, cases = 0.0, 0
    settings = ((2, 0.589), (2, 0.3), (4, 0.6), (4, 0.84), (4, 0.5))
    for num_cells, share in settings:
        for queries in (np.eye(1, num_cells, dtype=np.int64), _predicates(num_cells)):
            size = small_db_size(len(queries), share)
            for seed in range(12):
                counts = _data(num_cells, 60, seed)
                mechanism = MultisetChoice(queries, 1.0, 60, size)
                least = min(_losses(mechanism, counts).values()) / 60
                worst, cases = max(worst, least / share), cases + 1
    return Slack(worst, 1.0, cases, "alpha")


def _samples(trials: int) -> list[Failures]:
    """How often a sample misses a query, against the union bound that fixes m."""
    found = []
    for queries, share, beta in (
        (np.array([[0, 1]]), 0.4999, 0.17),
        (_predicates(3), 0.3, _BETA),
        (_predicates(8), 0.15, _BETA),
    ):
        # Of so many more queries that the union bound is below beta and not below 1.
        size = small_db_size(math.ceil(len(queries) / beta), share)
        shares = np.full(queries.shape[1], 1 / queries.shape[1])
        drawn = np.random.default_rng(101).multinomial(size, shares, trials) / size
        errors = np.abs((drawn - shares) @ queries.T).max(axis=1) / share
        found.append(failures(errors.tolist(), beta))
    return found


def _tails(trials: int) -> Slack:
    """How many of k queries a sample of the tight size misses on average, by exact tails."""
    del trials
    worst, cases = 0.0, 0
    for count, share in product((1, 2, 3, 16, 1024, 10**6), (0.05, 0.1, 0.25, 0.5, 0.589, 0.9)):
        size = small_db_size(count, share)
        for mean in (0.01, 0.1, 0.3, 0.41, 0.5, 0.7):
            missed = binom.sf(math.floor(size * (mean + share)), size, mean)
            missed += binom.cdf(math.ceil(size * (mean - share)) - 1, size, mean)
            worst, cases = max(worst, count * float(missed)), cases + 1
    return Slack(worst, 1.0, cases, "misses")


def _multisets(trials: int) -> list[Agreement]:
    del trials
    pairs = list(product(range(1, 8), range(1, 8)))
    counted = [sum(1 for _ in combinations_with_replacement(range(u), m)) for u, m in pairs]
    difference = max(abs(num_multisets(*p) - n) for p, n in zip(pairs, counted, strict=True))
    logs = max(
        abs(log_num_multisets(*p) - math.log(n)) for p, n in zip(pairs, counted, strict=True)
    )
    listed = "a list of them"
    return [
        Agreement(difference, len(pairs), listed),
        Agreement(logs, len(pairs), f"logarithms of {listed}", 1e-12),
    ]


def _sensitivity(trials: int) -> Slack:
    """How far one record moves the score of any multiset."""
    del trials
    worst, cases = 0.0, 0
    for queries, num_records, relation in product(_TINY, (1, 5), _RELATIONS):
        cells = queries.shape[1]
        mechanism = MultisetChoice(queries, 1.0, num_records, 2)

        @functools.cache
        def losses(
            data: tuple[int, ...], mechanism: MultisetChoice = mechanism, cells: int = cells
        ) -> NDArray[np.float64]:
            counts = np.bincount(data, minlength=cells).astype(np.int64)
            return np.array(list(_losses(mechanism, counts).values()))

        for size in range(4):
            for others in combinations_with_replacement(range(cells), size):
                for one, other in neighbouring_units(range(cells), relation):
                    moved = np.abs(losses((*others, *one)) - losses((*others, *other))).max()
                    worst, cases = max(worst, float(moved)), cases + 1
    return Slack(worst, 1.0, cases, "records")


def _privacy(trials: int) -> list[Slack]:
    """The largest log-ratio of the exact law on neighbours, as a share of epsilon."""
    del trials
    found = []
    for relation in _RELATIONS:
        worst, cases = 0.0, 0
        for queries, num_records, size, others, units, epsilon in (
            (_TINY[0], 12, 1, 12, 1, 1.0),
            (_TINY[0], 8, 1, 7, 2, 2.0),
            (_TINY[1], 4, 2, 4, 1, 1.0),
            (_TINY[2], 5, 4, 3, 1, 0.5),
        ):
            mechanism = MultisetChoice(queries, epsilon, num_records, size, 1, units)
            cells = queries.shape[1]
            unit = "record" if units == 1 else "person"
            guarantee = Guarantee(epsilon, 0, relation, unit, units)  # type: ignore[arg-type]

            def law(
                data: tuple[int, ...], mechanism: MultisetChoice = mechanism, cells: int = cells
            ) -> Law:
                return _law(mechanism, np.bincount(data, minlength=cells).astype(np.int64))

            audit = audit_law(law, range(cells), guarantee, num_others=others)
            worst, cases = max(worst, audit.epsilon / epsilon), cases + audit.num_pairs
        found.append(Slack(worst, 1.0, cases, f"epsilon, {relation}"))
    return found


def _drawn_losses(
    mechanism: MultisetChoice, counts: NDArray[np.int64], trials: int
) -> Iterator[float]:
    """What the worst query is wrong by, in records, of real draws."""
    losses, noise = _losses(mechanism, counts), NoiseSource()
    sampler = EnumerationSampler(mechanism.law(counts))
    for _ in range(trials):
        yield losses[tuple(map(int, sampler.draw(noise)))]


def _selection(trials: int) -> Failures:
    """One multiset is right, and all others miss by just more than the bound lets them."""
    num_cells = 100
    bound = small_db_error(num_cells, 1, 1.0, 1, 0.0, _BETA)
    num_records = math.floor(bound) + 1
    mechanism = MultisetChoice(np.eye(num_cells, dtype=np.int64), 1.0, num_records, 1)
    counts = np.zeros(num_cells, np.int64)
    counts[0] = num_records
    drawn = _drawn_losses(mechanism, counts, trials)
    return failures([loss / bound for loss in drawn], _BETA)


def _proposition(trials: int) -> list[Failures]:
    found = []
    for queries, counts, share in (
        # The best database is wrong by half of the records: alpha is as small as one record allows.
        (np.array([[0, 1]]), np.array([2000, 2000]), 0.589),
        (np.tri(4, dtype=np.int64), _data(4, 400, 1), 0.3),
        (_predicates(4), _data(4, 200, 0), 0.4),
    ):
        size, num_records = small_db_size(len(queries), share), int(counts.sum())
        bound = small_db_error(len(counts), size, 1.0, num_records, share, _BETA)
        mechanism = MultisetChoice(queries, 1.0, num_records, size)
        drawn = _drawn_losses(mechanism, counts, trials)
        found.append(failures([loss / bound for loss in drawn], _BETA))
    return found


_GRID = tuple(product((2, 16, 1024), (3, 16, 10**6), (0.01, 0.1, 0.5, 1.0), (0.5, 0.05, 1e-6)))


def _published(trials: int) -> list[Slack | Failures]:
    """What Proposition 4.4 says at half of alpha for the records that Theorem 4.5 asks for."""
    worst = 0.0
    for cells, count, share, beta in _GRID:
        needed = small_db_theorem(cells, count, 1.0, beta, "textbook").records_needed(share)
        assert needed is not None
        error = published_small_db_error(cells, count, 1.0, needed, share / 2, beta)
        worst = max(worst, error / (share * needed))
    cells, queries, share = 4, np.tri(4, dtype=np.int64)[:3], 0.5
    needed = small_db_theorem(cells, len(queries), 1.0, _BETA, "textbook").records_needed(share)
    assert needed is not None
    size = small_db_size(len(queries), share / 2, "textbook")
    mechanism = MultisetChoice(queries, 1.0, needed, size)
    drawn = _drawn_losses(mechanism, _data(cells, needed, 0), trials)
    return [
        Slack(worst, 1.0, len(_GRID), "alpha"),
        failures([loss / (share * needed) for loss in drawn], _BETA),
    ]


def _sharper(trials: int) -> Agreement:
    """The closed form of the records, against Proposition 4.4 searched for them."""
    del trials
    worst = 0
    for cells, count, share, beta in _GRID:
        main = 16 * math.log(cells) * math.log(count) - 4 * share**2 * math.log(beta)
        closed = math.ceil(main / share**3)
        searched = sharper_small_db_theorem(cells, count, 1.0, beta).records_needed(share)
        assert searched is not None
        worst = max(worst, abs(searched - closed))
    return Agreement(worst, len(_GRID), "Proposition 4.4 at alpha/2, searched for n")


def _unnormalised(trials: int) -> list[Agreement | Slack]:
    """The error in records that n gives: the n that it needs, and Proposition 4.4 at half of it."""
    del trials
    apart, worst, cases = 0, 0.0, 0
    for cells, count, beta in product((2, 16, 1024), (3, 16, 10**6), (0.5, 0.05, 1e-6)):
        theorem = small_db_theorem(cells, count, 1.0, beta, "textbook")
        for num_records in (600, 10**4, 10**6, 10**9):
            bound = theorem.bound(num_records)
            if bound.vacuous:
                continue
            share = bound.max_error_fraction
            needed = theorem.records_needed(share)
            assert needed is not None
            error = published_small_db_error(cells, count, 1.0, num_records, share / 2, beta)
            apart, worst = (
                max(apart, abs(needed - num_records)),
                max(worst, error / bound.max_error),
            )
            cases += 1
    return [
        Slack(worst, 1.0, cases, "errors"),
        Agreement(apart, cases, "the records that Theorem 4.5 asks for"),
    ]


def _query_counts(trials: int) -> list[Agreement]:
    """The largest number of queries, against trying one after another, and against its formula."""
    del trials
    scanned, scans, solved, solutions = 0, 0, 0, 0
    for cells, num_records in product((2, 64, 1024), (10**4, 10**6)):
        for calibration, least in _CALIBRATIONS:

            def theorem(
                count: int, cells: int = cells, calibration: Calibration = calibration
            ) -> Theorem:
                return small_db_theorem(cells, count, 1.0, _BETA, calibration)

            errors = [theorem(count).error(num_records) for count in range(least, 200)]
            for target in errors[4] + 1e-3, errors[60] + 1e-3, errors[150] + 1e-3:
                allowed = queries_allowed(theorem, num_records, target, _BETA, least=least)
                tried = least - 1 + sum(error <= target for error in errors)
                scanned, scans = max(scanned, abs(allowed - tried)), scans + 1
        for share in (0.05, 0.1, 0.2, 0.5):
            target = share * num_records
            allowed = queries_allowed(
                lambda count, cells=cells: small_db_theorem(cells, count, 1.0, _BETA, "textbook"),
                num_records,
                target,
                _BETA,
                least=3,
            )
            log_most = (num_records * share**3 + 4 * math.log(_BETA)) / (16 * math.log(cells))
            if log_most < math.log(10**15):
                expected = math.floor(math.exp(log_most))
                solved = max(solved, abs(allowed - (expected if expected >= 3 else 0)))
                solutions += 1
    return [
        Agreement(scanned, scans, "trying one after another"),
        Agreement(solved, solutions, "Theorem 4.5 solved for k"),
    ]


CLAIMS = [
    Claim(
        key="small_db.size",
        source="Blum, Ligett and Roth 2013; Dwork and Roth 2014, Theorem 4.2",
        statement="some database of m = ln(k)/alpha^2 records answers k queries within alpha",
        printed='the notes say "log Q/eps^2" and "error <= eps": alpha in both places; they allow'
        " k = 2, where the union bound is 1: k >= 3; log is natural (to base 2 the size is 1.44"
        " times larger, still enough); m is an integer: rounded up",
        here="`small_db_size`: floor(ln(2k)/(2 alpha^2)) + 1, for any k; ceil(ln(k)/alpha^2) as"
        " published, k >= 3",
        measure=_best_databases,
    ),
    Claim(
        key="small_db.hoeffding",
        source="Blum, Ligett and Roth 2013; Dwork and Roth 2014, proof of Theorem 4.2",
        statement="m records drawn from the data miss one query by more than alpha with"
        " probability at most 2 exp(-2 m alpha^2)",
        printed="the notes write n for the size m of the sample, and leave out the factor 2 of the"
        " two-sided bound, which is needed",
        here="`small_db_size` is the least m with 2k exp(-2 m alpha^2) < 1: exact binomial tails"
        " at that m",
        measure=_tails,
    ),
    Claim(
        key="small_db.samples",
        source="Blum, Ligett and Roth 2013; Dwork and Roth 2014, proof of Theorem 4.2",
        statement="a sample of m records misses some of k queries by more than alpha with"
        " probability at most 2k exp(-2 m alpha^2)",
        here="`small_db_size(k/beta, alpha)`, at which that is beta; all predicates of 3 and of 8"
        " cells",
        measure=_samples,
    ),
    Claim(
        key="small_db.count",
        source="Blum, Ligett and Roth 2013; Dwork and Roth 2014, Algorithm 4",
        statement="the databases to choose from are U^m",
        printed='"size at most m" and |R| <= U^m: they are the multisets of exactly m records,'
        " C(U + m - 1, m); U^m counts sequences, an upper bound",
        here="`num_multisets`, `log_num_multisets`",
        measure=_multisets,
    ),
    Claim(
        key="small_db.sensitivity",
        source="Blum, Ligett and Roth 2013; lecture on linear queries",
        statement="one record moves a query, and so the score of a database, by at most 1/n",
        printed='"Df <= 1/|D|" is of replace-one, where n is public; if a record is added or'
        ' removed n is private, and no noise may depend on it; the notes\' "u <= 1/|D|" is of the'
        " sensitivity of u",
        here="counts, of which one record moves the score -max over q of |S(q) - N q(y)| by 1,"
        " whatever N: `MultisetChoice`",
        measure=_sensitivity,
    ),
    Claim(
        key="small_db.privacy",
        source="Blum, Ligett and Roth 2013; Dwork and Roth 2014, Proposition 4.3",
        statement="the exponential mechanism over databases of m records is epsilon-private",
        printed="the score is without absolute values in the notes: -max over q of |S(q) - N q(y)|",
        here="`MultisetChoice`, for any m, N and queries: the exact law on all neighbours of tiny"
        " domains",
        measure=_privacy,
    ),
    Claim(
        key="small_db.selection",
        source="Blum, Ligett and Roth 2013; Dwork and Roth 2014, Theorem 3.11",
        statement="the database that is chosen errs by at most the best one's error +"
        " (2/epsilon)(ln|R| + ln(1/beta)) except with probability beta",
        printed='the notes have ">= -OPT + ..." with the sign of the score lost, and u where its'
        " sensitivity is meant",
        here="`small_db_error`, real draws; one database is right, 99 err by just more",
        measure=_selection,
    ),
    Claim(
        key="small_db.proposition_4_4",
        source="Dwork and Roth 2014, Proposition 4.4",
        statement="no answer errs by more than alpha n + (2/epsilon)(m ln U + ln(1/beta)),"
        " m = ln(k)/alpha^2, except with probability beta",
        printed="m is taken as real; log is natural",
        here="`small_db_error`, with ln C(U + m - 1, m) for m ln U and an integer m; real draws",
        measure=_proposition,
        trials=1000,
    ),
    Claim(
        key="small_db.theorem_4_5",
        source="Dwork and Roth 2014, Theorem 4.5",
        statement="no answer of SmallDB(alpha/2) errs by more than alpha n, except with probability"
        " beta, if n >= (16 ln U ln k + 4 ln(1/beta))/(epsilon alpha^3)",
        printed="the size is that of alpha/2, m = 4 ln(k)/alpha^2, taken as real: rounding it up"
        " adds up to 4 ln(U)/(epsilon alpha) to n",
        here='`small_db_theorem(..., "textbook")`: what Proposition 4.4 leaves of alpha at that n,'
        " and real draws",
        measure=_published,
        trials=1000,
    ),
    Claim(
        key="small_db.sharper",
        source="Blum, Ligett and Roth 2013, final theorem of the notes",
        statement="the same if n >= (16 ln U ln k + 4 alpha^2 ln(1/beta))/(epsilon alpha^3)",
        printed='the "16" is printed 6, the bracket closes early, and a later display divides by'
        " 2^2 for alpha^3; Theorem 4.5 of Dwork and Roth drops the alpha^2 (weaker, still true)",
        here="`sharper_small_db_theorem`",
        measure=_sharper,
    ),
    Claim(
        key="small_db.theorem_4_6",
        source="Dwork and Roth 2014, Theorem 4.6",
        statement="in records the error is n^(2/3) ((16 ln U ln k + 4 ln(1/beta))/epsilon)^(1/3)",
        printed='"solving for alpha yields (4.4)": it yields (4.2), of which (4.4) is n times;'
        " it says something only below n",
        here='`small_db_theorem(..., "textbook").bound(n)`, which `records_needed` inverts',
        measure=_unnormalised,
    ),
    Claim(
        key="small_db.query_count",
        source="Dwork and Roth 2014, section 4.1, footnote 2",
        statement="n records allow exp(O(alpha^3 epsilon n / ln U)) queries",
        printed="the constant is hidden: ln k = (epsilon alpha^3 n - 4 ln(1/beta))/(16 ln U)",
        here="`theorems.theorem.queries_allowed`, `beam-dp plan --target_error` without a"
        " workload; tight and as published",
        measure=_query_counts,
    ),
]
