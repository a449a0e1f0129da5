"""What is published of the VC dimension of queries, and of the small databases that it allows."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from itertools import combinations, product

import numpy as np
from claim_rows.claim import Agreement, Claim, Measured, Slack, failures
from numpy.typing import NDArray

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms.small_db.choice import MultisetChoice
from beam_dp.mechanisms.small_db.size import (
    VCBound,
    small_db_size,
    small_db_size_by_vc,
    small_db_size_for_intervals,
)
from beam_dp.mechanisms.small_db.small_db import SmallDB
from beam_dp.planning.theorems.synthesis import best_small_db_size, small_db_theorem
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.linear_workload import MAX_MATRIX_VALUES, LinearWorkload, parse_linear_workload
from beam_dp.queries.reader import LinearQueries
from beam_dp.queries.vc_dimension import (
    family_vc_dimension,
    log_sauer_bound,
    matrix_vc_dimension,
    sauer_bound,
)

Matrix = NDArray[np.int64]

_BETA, _SEED = 0.05, 4
_MAX_SIZE = 24  # of a small database that is drawn
_TINY = [(1,), (2,), (3,), (4,), (6,), (1, 3), (2, 2), (3, 2), (3, 3), (4, 3), (2, 2, 2), (3, 2, 2)]


def _brute_force(matrix: Matrix) -> int:
    """The dimension, from every set of cells."""
    for size in range(len(matrix).bit_length() - 1, 0, -1):
        powers = 1 << np.arange(size)
        for cells in combinations(range(matrix.shape[1]), size):
            if len(np.unique(matrix[:, cells] @ powers)) == 1 << size:
                return size
    return 0


def _classes(trials: int) -> Iterator[Matrix]:
    """Classes on 5 to 8 cells that attain bounds, and others at random; queries are distinct."""
    for cells in (5, 6, 7):
        everything = np.array([*product((0, 1), repeat=cells)])
        for most in range(cells + 1):
            yield everything[everything.sum(axis=1) <= most]
        ends = [*combinations(range(cells + 1), 2), (0, 0)]
        yield (
            np.array([[start <= cell < stop for cell in range(cells)] for start, stop in ends]) * 1
        )
    generator = np.random.default_rng(_SEED)
    for trial in range(trials):
        shape = 4 + trial % 60, 5 + trial % 4
        yield np.unique((generator.random(shape) < generator.random()).astype(np.int64), axis=0)


def _logarithm(trials: int) -> Slack:
    classes = [each for each in _classes(trials) if len(each) > 2]
    # Without a step of the search it is the number of queries that bounds the dimension.
    bounds = [matrix_vc_dimension(each, max_steps=0).most for each in classes]
    seen = max(map(operator.truediv, map(_brute_force, classes), bounds))
    return Slack(seen, 1.0, len(classes), "times lg of the number of queries, rounded down")


def _search(trials: int) -> Agreement:
    classes = [*_classes(trials)]
    found = [matrix_vc_dimension(each) for each in classes]
    off = max(
        abs(exact - each.least) + abs(exact - each.most) + abs(exact - len(each.shattered))
        for each, exact in zip(found, map(_brute_force, classes), strict=True)
    )
    return Agreement(off, len(classes), "all sets of cells")


def _sauer(trials: int) -> Slack:
    shares = []
    for each in _classes(trials):
        dimension = _brute_force(each)
        if not dimension:
            continue
        for points in range(1, each.shape[1] + 1):
            patterns = len(np.unique(each[:, :points], axis=0))
            shares.append(patterns / sauer_bound(points, dimension))
    return Slack(max(shares), 1.0, len(shares), "times the bound")


def _domain(*sizes: int) -> Domain:
    return Domain(tuple(IntegerAttribute(f"a{i}", 0, size - 1) for i, size in enumerate(sizes)))


def _rectangles(sizes: tuple[int, ...], only_prefixes: bool) -> Matrix:
    """All products of one interval of codes for each attribute."""
    ends = [
        [
            (start, stop)
            for start, stop in combinations(range(size + 1), 2)
            if not only_prefixes * start
        ]
        for size in sizes
    ]
    cells = [*product(*map(range, sizes))]
    return np.array(
        [
            [
                all(a <= code < b for (a, b), code in zip(chosen, cell, strict=True))
                for cell in cells
            ]
            for chosen in product(*ends)
        ]
    ).astype(np.int64)


def _of_up_to(form: str, domain: Domain, most: int) -> Matrix:
    """The queries of a named form about 1 to so many attributes."""
    rows = [
        query.values()
        for ways in range(1, most + 1)
        for query in parse_linear_workload(f"{form}:{ways}", domain)
    ]
    return np.array(rows).astype(np.int64)


def _families(trials: int) -> Agreement:
    pairs: list[tuple[int, Matrix]] = []
    for sizes in _TINY:
        pairs.append((family_vc_dimension("prefixes", sizes), _rectangles(sizes, True)))
        pairs.append((family_vc_dimension("rectangles", sizes), _rectangles(sizes, False)))
        cells = np.eye(math.prod(sizes), dtype=np.int64)
        pairs.append((family_vc_dimension("cells", sizes), cells))
    for width in (1, 2, 3):
        domain, sizes = _domain(*[2] * width), [2] * width
        ones, zeros = np.ones((1, 2**width), np.int64), np.zeros((1, 2**width), np.int64)
        conjunctions = np.vstack([ones, _of_up_to("conjunctions", domain, width)])
        monotone = np.vstack([ones, _of_up_to("monotone_conjunctions", domain, width)])
        parities = np.vstack([zeros, _of_up_to("parities", domain, width)])
        pairs += [
            (family_vc_dimension("conjunctions", sizes), conjunctions),
            (family_vc_dimension("disjunctions", sizes), 1 - conjunctions),
            (family_vc_dimension("monotone_conjunctions", sizes), monotone),
            (family_vc_dimension("monotone_disjunctions", sizes), 1 - monotone),
            (family_vc_dimension("parities", sizes), parities),
        ]
    off = max(abs(formula - _brute_force(matrix)) for formula, matrix in pairs)
    return Agreement(off, len(pairs), "all sets of cells")


def _queries(name: str) -> Matrix:
    """Classes of known dimension on 64 cells or fewer."""
    if name == "cube":
        return np.array([*product((0, 1), repeat=8)])
    spec, sizes = {
        "prefixes": ("prefixes:a0", [64]),
        "intervals": ("intervals:a0", [64]),
        "conjunctions": ("conjunctions:2", [2] * 6),
    }[name]
    return np.array(
        [query.values() for query in parse_linear_workload(spec, _domain(*sizes))], np.int64
    )


def _sample_errors(matrix: Matrix, size: int, trials: int) -> NDArray[np.float64]:
    """The largest error of a query, as a share, of each of some random samples of uniform data.

    Few cells with equally many records are hard to sample; a sample is of real randomness.
    """
    cells = matrix.shape[1]
    samples = np.random.default_rng(197).multinomial(size, np.full(cells, 1 / cells), trials)
    exact = matrix.mean(axis=1)[:, None]
    return np.abs(matrix @ samples.T / size - exact).max(axis=0)


def _samples(rule: VCBound) -> list[tuple[Matrix, int, float, int, float]]:
    """Settings: queries, their dimension, a share, the size for it, and the log of the union."""
    found = []
    for name, fraction in (
        ("cube", 0.1),
        ("prefixes", 0.1),
        ("intervals", 0.15),
        ("conjunctions", 0.2),
    ):
        matrix = _queries(name)
        dimension = matrix_vc_dimension(matrix, max_steps=2**22).most
        size = small_db_size_by_vc(dimension, fraction, rule, matrix.shape[1])
        log_union = math.log(2) + log_sauer_bound(matrix.shape[1], dimension)
        if rule == "devroye":
            log_union = math.log(4) + log_sauer_bound(size**2, dimension)
        found.append((matrix, dimension, fraction, size, log_union))
    return found


def _existence(rule: VCBound, trials: int) -> list[Measured]:
    """Some sample is good enough; and where the union is so small as beta, all but beta are."""
    settings = _samples(rule)
    best, errors = [], []
    for matrix, _, fraction, size, log_union in settings:
        found = _sample_errors(matrix, size, trials)
        best.append(float(found.min()) / fraction)
        # A larger share, at which the same inequality gives beta and not 1.
        larger = fraction
        while _exponent(rule, larger, size, log_union) > math.log(_BETA):
            larger *= 1.01
        errors += (found / larger).tolist()
    return [
        Slack(max(best), 1.0, len(settings), "times alpha, of the best sample"),
        failures(errors, _BETA),
    ]


def _exponent(rule: VCBound, fraction: float, size: int, log_union: float) -> float:
    """The logarithm of the probability of a miss by a share, as the inequality bounds it."""
    more = 4 * fraction + 4 * fraction**2 if rule == "devroye" else 0.0
    return log_union + more - 2 * size * fraction**2


def _finite(trials: int) -> list[Measured]:
    return _existence("finite", trials)


def _devroye(trials: int) -> list[Measured]:
    return _existence("devroye", trials)


def _number_of_queries(trials: int) -> Slack:
    """Of small classes, and of the largest that Sauer's bound admits in 2^24 values."""
    settings = [(len(each), _brute_force(each), each.shape[1]) for each in _classes(trials)]
    for dimension, log_cells in product((0, 1, 2, 3, 5, 8), range(4, 25, 2)):
        cells = 2**log_cells
        queries = min(sauer_bound(cells, dimension), MAX_MATRIX_VALUES // cells)
        settings.append((queries, dimension, cells))
    shares = [
        small_db_size(queries, fraction) / small_db_size_by_vc(dimension, fraction, None, cells)
        for queries, dimension, cells in settings
        for fraction in (0.5, 0.2, 0.05)
    ]
    return Slack(max(shares), 1.0, len(shares), "times the size by VC dimension")


def _releases(trials: int) -> list[Measured]:
    """Of prefixes, whose dimension is 1, and of all queries on 4 cells, where it is 4."""
    found: list[Measured] = []
    noise = NoiseSource()
    for matrix, dimension, epsilon, counts in (
        (np.tri(8, dtype=np.int64), 1, 0.2, [530, 471, 612, 387, 505, 493, 521, 481]),
        (np.tri(8, dtype=np.int64), 1, 1.0, [1, 999, 0, 0, 1, 0, 999, 0]),
        (np.array([*product((0, 1), repeat=4)]), 4, 1.0, [400, 300, 200, 100]),
    ):
        cells, records = matrix.shape[1], sum(counts)
        arguments = (cells, sauer_bound(cells, dimension), epsilon, _BETA)
        _, size = best_small_db_size(*arguments, records, max_size=_MAX_SIZE)
        theorem = small_db_theorem(*arguments, max_size=_MAX_SIZE)
        bound = theorem.bound(records).max_error
        choice = MultisetChoice(matrix, epsilon, records, size)
        data, errors = np.array(counts), []
        for _ in range(trials):
            drawn = np.bincount(choice.draw(data, noise), minlength=cells)
            worst = np.abs(matrix @ data - records * (matrix @ drawn) / size).max()
            errors.append(float(worst) / bound)
        found.append(failures(errors, _BETA))
    return found


def _quantiles(trials: int) -> Slack:
    generator, shares = np.random.default_rng(_SEED), []
    for trial in range(trials):
        fraction = float(generator.choice([1 / 2, 0.3, 0.1, 1 / 30, 0.0101]))
        size = small_db_size_for_intervals(fraction)
        # Even, uneven, and single cells; with cells of 1 / (2 m) an interval is missed by 1 / m.
        weights = generator.random(200) ** (trial % 4) ** 3
        if trial % 4 == 0:
            weights = np.ones(2 * size)
        steps = np.concatenate([[0.0], np.cumsum(weights / weights.sum())])
        chosen = np.searchsorted(steps[1:-1], (np.arange(size) + 0.5) / size)
        drawn = np.concatenate([[0], np.cumsum(np.bincount(chosen, minlength=len(weights)))])
        # The error of an interval is the difference of those of two prefixes.
        errors = drawn / size - steps
        shares.append(float(errors.max() - errors.min()) / fraction)
    return Slack(max(shares), 1.0, len(shares), "times alpha")


def _real_values(trials: int) -> list[Measured]:
    generator, best, accepted = np.random.default_rng(_SEED), [], 0
    domain = _domain(8)
    make, promise = LinearQueries(domain), Guarantee(1.0, 0.0, "add_or_remove_one", "record", 1)
    for fraction in (0.3, 0.2, 0.1, 0.05):
        matrix = generator.integers(0, 5, (40, 8)) / 4
        size = small_db_size(len(matrix), fraction)
        best.append(float(_sample_errors(matrix, size, trials).min()) / fraction)
        workload = LinearWorkload(domain, tuple(map(make.explicit, matrix)))
        try:
            SmallDB(size=3, vc_dimension=2).plan(domain, workload, promise, 100)
            accepted += 1
        except InputError:
            continue
    return [
        Slack(max(best), 1.0, len(best), "times alpha, of the best sample"),
        Agreement(accepted, len(best), "refusals of a VC dimension"),
    ]


CLAIMS = [
    Claim(
        key="vc_dimension.lg",
        source="Dwork and Roth 2014, Lemma 4.7",
        statement="the VC dimension of k queries is at most lg k",
        printed="log, which is the natural one elsewhere: all 2^v queries on v cells break that",
        here="`queries.matrix_vc_dimension`: lg",
        measure=_logarithm,
        trials=300,
    ),
    Claim(
        key="vc_dimension.search",
        source="Vapnik and Chervonenkis 1971, definition",
        statement="the dimension of a 0/1 matrix is the size of the largest set of cells that its "
        "rows shatter",
        here="`queries.matrix_vc_dimension`, with the set; bounds where its limit of work ends",
        measure=_search,
        trials=300,
    ),
    Claim(
        key="vc_dimension.sauer",
        source="Sauer 1972; Vapnik and Chervonenkis 1971",
        statement="queries of VC dimension v have at most sum of C(n, i) for i <= v patterns on n "
        "cells",
        here="`queries.sauer_bound`; attained by all sets of v cells or fewer, and by intervals",
        measure=_sauer,
        trials=300,
    ),
    Claim(
        key="vc_dimension.families",
        source="Dwork and Roth 2014, section 4.1, for its examples",
        statement="of products of intervals over attributes of s codes the sum of min(2, s - 1); "
        "of prefixes the sum of min(1, s - 1); of cells 1; of conjunctions, disjunctions and "
        "parities of d yes/no attributes d",
        here="`queries.family_vc_dimension`, which proves them",
        measure=_families,
        trials=1,
    ),
    Claim(
        key="vc_dimension.finite",
        source="Dwork and Roth 2014, Theorem 4.8",
        statement="m records of order v / alpha^2 answer all queries of VC dimension v within "
        "alpha",
        printed="of linear queries, but only 0/1 queries have a VC dimension; the constant is not "
        "given",
        here="`small_db_size_by_vc`, finite: 2 (sum of C(U, i) for i <= v) exp(-2 m alpha^2) < 1; "
        "where that is beta, all samples do, except a share beta",
        measure=_finite,
        trials=1000,
    ),
    Claim(
        key="vc_dimension.devroye",
        source="Dwork and Roth 2014, Theorem 4.8; Devroye 1982",
        statement="the same whatever the universe",
        printed="the constant is not given",
        here="`small_db_size_by_vc`, devroye: 4 exp(4 alpha + 4 alpha^2) (sum of C(m^2, i) for "
        "i <= v) exp(-2 m alpha^2) < 1",
        measure=_devroye,
        trials=1000,
    ),
    Claim(
        key="vc_dimension.number_of_queries",
        source="Dwork and Roth 2014, section 4.1",
        statement="the VC dimension in place of ln k makes small databases smaller",
        printed="not where the queries can be listed: k is at most the sum of C(U, i) by Sauer",
        here="`small_db_size`, by the number of distinct queries, is the smaller one for all "
        "workloads of up to 2^24 values; the dimension serves more queries than that",
        measure=_number_of_queries,
        trials=300,
    ),
    Claim(
        key="vc_dimension.release",
        source="Dwork and Roth 2014, Theorem 4.9",
        statement="SmallDB with ln k replaced by the VC dimension: the error is of order "
        "((ln U v + ln(1/beta)) / (epsilon n))^(1/3), except with probability beta",
        printed="of linear queries, with a constant that is not given",
        here="`theorems.synthesis.small_db_theorem` for k = the sum of C(U, i) for i <= v",
        measure=_releases,
        trials=500,
    ),
    Claim(
        key="vc_dimension.intervals",
        source="Dwork and Roth 2014, Theorem 4.2, for intervals",
        statement="prefixes and intervals of one ordered attribute need ceil(1 / alpha) records",
        printed="ln k / alpha^2, as for any queries: ln k / alpha times as many",
        here="`small_db_size_for_intervals`: quantiles at shares (i - 1/2) / m miss intervals by "
        "1 / m at most",
        measure=_quantiles,
        trials=600,
    ),
    Claim(
        key="vc_dimension.real_values",
        source="Dwork and Roth 2014, section 4.1",
        statement="fat-shattering dimension is the analogue for queries with values in [0, 1]",
        printed="named only: no size is given",
        here="not provided: `small_db_size` by the number of queries holds for any values, or "
        "`--size`; a VC dimension is refused",
        measure=_real_values,
        trials=1000,
    ),
]
