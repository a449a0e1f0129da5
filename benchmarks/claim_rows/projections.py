"""What Blum and Roth (2011), section 4, state of SparseProject."""

from __future__ import annotations

import itertools
import math

import numpy as np
from claim_rows.claim import Agreement, Claim, Failures, Measured, Slack, failures
from claim_rows.published import (
    published_largest_entry,
    published_projection,
    published_projection_noise,
    published_weighted_noise,
)
from numpy.typing import NDArray

from beam_dp.hashing.evaluation import BinaryField, PolynomialFamily
from beam_dp.hashing.keys import HashKey, num_words
from beam_dp.hashing.projections import BlockSigns, DenseSigns, Distortion
from beam_dp.mechanisms.sketches.mechanisms import SparseProject
from beam_dp.mechanisms.sketches.plan import SparsePlan, SparseSummary, release_sparse
from beam_dp.planning.sketches import projection_theorem
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.bound import weighted_noise_bound
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.privacy.steps import total
from beam_dp.secret.summaries.projection import Projection

Integers = NDArray[np.int64]
_BETA, _DELTA, _R = 0.05, 1e-9, 48
_PROMISE = Guarantee(1.0, _DELTA, "add_or_remove_one", "record", 1)


def _signs(projection_width: int, num_blocks: int, key: HashKey) -> DenseSigns | BlockSigns:
    if num_blocks == projection_width:
        return DenseSigns(key, projection_width)
    return BlockSigns(key, projection_width, num_blocks)


def _keys(number: int) -> NDArray[np.uint64]:
    return np.arange(number, dtype=np.uint64)


def _norm(trials: int) -> list[Measured]:
    """Of a set of 50 keys, which as data and query at once comes closest to the bound."""
    found: list[Measured] = []
    ones = np.ones(50, np.int64)
    for width, blocks in ((64, 64), (512, 512), (1024, 8)):
        tails = Distortion(width, blocks, _R, len(ones), 1)
        allowed = tails.squared_norm(_BETA) - len(ones)
        errors = []
        for _ in range(trials):
            sums = _signs(width, blocks, HashKey.draw(_R)).project(_keys(len(ones)), ones)
            errors.append(abs(float(sums @ sums) / blocks - len(ones)) / allowed)
        found.append(failures(errors, _BETA))
    return found


def _inner_products(trials: int) -> list[Measured]:
    """Five queries of 20 keys each: of the data, half of them, or not; equal counts, and not."""
    found: list[Measured] = []
    polarised = 0.0
    equal, heavy = np.full(100, 7), np.r_[np.full(3, 500), np.full(97, 2)]
    settings = ((256, 256, equal), (256, 256, heavy), (2048, 8, equal), (2048, 2, heavy))
    for width, blocks, counts in settings:
        tails = Distortion(width, blocks, _R, 20, 5)
        allowed = tails.bound(float(np.linalg.norm(counts)), float(counts.max()), _BETA)
        starts = (0, 10, 50, 90, 200)
        errors = []
        for _ in range(trials):
            signs = _signs(width, blocks, HashKey.draw(_R))
            x = signs.project(_keys(len(counts)), counts)
            worst = 0.0
            for start in starts:
                y = signs.project(_keys(220)[start : start + 20], np.ones(20, np.int64))
                error = float(x @ y) / blocks - counts[start : start + 20].sum()
                worst = max(worst, abs(error) / allowed)
                quarter = (x + y) @ (x + y) - (x - y) @ (x - y) - 4 * (x @ y)
                polarised = max(polarised, abs(float(quarter)))
            errors.append(worst)
        found.append(failures(errors, _BETA))
    cases = trials * 5 * len(settings)
    return [Agreement(polarised, cases, "the identity"), *found]


def _size(_: int) -> list[Measured]:
    """The published width must keep the distortion below sqrt(m), one half of beta for it."""
    found: list[Measured] = []
    for records, sparsity, queries in ((10, 4, 16), (100, 4, 100), (1000, 100, 1000)):
        published = published_projection(records, sparsity, queries, _BETA)
        width = math.ceil(published.width / 64) * 64
        tails = Distortion(width, width, published.independence, sparsity, queries)
        distortion = tails.bound(records, records, _BETA / 2)
        found.append(Slack(distortion, math.sqrt(sparsity), 1, f"records at T = {width:.3g}"))
    return found


def _independence(_: int) -> list[Measured]:
    """All keys over GF(2^4): the mean of every product of r bits, as signs."""
    found: list[Measured] = []
    field, points = BinaryField(4, 0b0011), np.arange(16, dtype=np.uint64)
    for independence, polynomials in ((2, 2), (3, 1)):
        # The first polynomial of a family has r coefficients, all of them together r (r + 1) / 2.
        free = num_words(independence) if polynomials > 1 else independence
        rows = []
        for words in itertools.product(range(16), repeat=free):
            key = np.zeros(num_words(independence), np.uint64)
            key[:free] = words
            values = PolynomialFamily(field, independence, key, polynomials).values(points)
            rows.append(
                ((values[..., None] >> np.arange(4, dtype=np.uint64)) & np.uint64(1)).ravel()
            )
        signs = 1.0 - 2.0 * np.array(rows)
        size, number = signs.shape[1], len(signs)
        means = [np.abs(signs.mean(axis=0)).max()]
        pairs = signs.T @ signs / number
        means.append(np.abs(pairs - np.eye(size)).max())
        if independence == 3:
            for i in range(size):
                triples = (signs * signs[:, [i]]).T @ signs / number
                triples[i, :] = triples[:, i] = 0.0
                np.fill_diagonal(triples, 0.0)
                means.append(np.abs(triples).max())
        what = f"all {number:,} keys of degree {independence - 1}"
        found.append(Agreement(float(max(means)), math.comb(size, independence), what))
    return found


def _privacy(_: int) -> list[Measured]:
    """Norms of columns, and of what plans reveal by the steps that ``verify`` recomputes."""
    worst, cases = 0, 0
    for width, blocks in ((64, 64), (1024, 1024), (1024, 8), (999, 9)):
        for _ in range(20):
            plan = _plan(width, blocks, "tight", 1)
            assert plan.sketch is not None
            signs = plan.sketch.signs(plan.hash_key)
            for key in range(10):
                column = plan.sketch.fold(signs.project(_keys(10)[[key]], np.ones(1, np.int64)))
                squares = int(column @ column) // plan.sketch.grid**2
                worst, cases = max(worst, abs(squares - blocks)), cases + 1
    shares, plans = [], 0
    for epsilon, delta, relation, calibration in itertools.product(
        (0.1, 1.0, 5.0),
        (1e-9, 1e-6),
        ("add_or_remove_one", "replace_one"),
        ("tight", "textbook"),
    ):
        promise = Guarantee(epsilon, delta, relation, "record", 1)
        for width, blocks in ((256, 256), (1024, 8)):
            steps = _plan(width, blocks, calibration, 1, promise).steps
            shares.append(total(steps, promise)[1] / epsilon)
            plans += 1
    return [
        Agreement(worst, cases, "T, or the number of blocks"),
        Slack(max(shares), 1.0, plans, "times epsilon"),
    ]


def _largest_entry(trials: int) -> list[Measured]:
    """The largest of all entries of four projected queries of 30 keys each."""
    sharp, published = [], []
    width, sparsity, queries = 1024, 30, 4
    tails = Distortion(width, width, _R, sparsity, queries)
    bound = tails.largest_entry(_BETA)
    corrected = published_largest_entry(width, sparsity, queries, _BETA) * math.sqrt(width)
    for _ in range(trials):
        entries = DenseSigns(HashKey.draw(_R), width).signs(_keys(sparsity * queries))
        sums = entries.reshape(queries, sparsity, width).sum(axis=1, dtype=np.int64)
        largest = float(np.abs(sums).max())
        sharp.append(largest / bound)
        published.append(largest / corrected)
    return [failures(sharp, _BETA), failures(published, _BETA)]


def _weighted_noise(trials: int) -> list[Measured]:
    """Sums with equal weights, for which the lemma is closest: of many terms, and of few."""
    found: list[Measured] = []
    noise, scale = NoiseSource(), 50.0
    for terms in (64, 2):
        drawn = noise.laplace(np.zeros(trials * terms, np.int64), scale).reshape(trials, terms)
        sums = np.abs(drawn.sum(axis=1))
        tight = weighted_noise_bound("discrete_laplace", scale, terms, 1.0, 1, _BETA)
        lemma = published_weighted_noise(terms, 1.0, scale, _BETA)
        found += [failures([*(sums / bound)], _BETA) for bound in (tight, lemma)]
    return found


def _plan(
    width: int, blocks: int, calibration: str, sparsity: int, promise: Guarantee = _PROMISE
) -> SparsePlan:
    if width == blocks:
        mechanism = SparseProject(width, "dense", calibration=calibration)  # type: ignore[arg-type]
    else:
        mechanism = SparseProject(width, "blocks", blocks, calibration=calibration)  # type: ignore[arg-type]
    return mechanism.plan(promise, max_sparsity=sparsity)


def _estimates(plan: SparsePlan, counts: Integers, number: int) -> NDArray[np.float64]:
    """Returns what one release says of the first keys, of which some have the counts."""
    assert plan.sketch is not None
    sums = plan.sketch.signs(plan.hash_key).project(_keys(len(counts)), counts)
    release = release_sparse(plan, SparseSummary(Projection(sums)), NoiseSource())
    return release.estimates(_keys(number))


def _accuracy(trials: int) -> list[Measured]:
    """Ten queries of 20 keys; the data have 200 keys, of one record or of up to 500."""
    found: list[Measured] = []
    heavy = np.r_[np.full(4, 500), np.random.default_rng(4).integers(1, 20, 196)]
    light = np.ones(200, np.int64)
    sparsity, queries, tens = 20, 10, np.array([0, 1, 2, 3, 5, 8, 13, 18, 19, 23])
    for width, blocks, calibration, counts in (
        (64, 64, "tight", light),
        (128, 4, "tight", heavy),
        (64, 64, "textbook", heavy),
    ):
        theorem = projection_theorem(
            _plan(width, blocks, calibration, sparsity), float(counts.max()), queries, _BETA
        )
        assert theorem is not None
        bound = theorem.bound(int(counts.sum())).max_error
        exact = np.r_[counts, np.zeros(50, np.int64)].reshape(-1, sparsity // 2)
        errors = []
        for _ in range(trials):
            plan = _plan(width, blocks, calibration, sparsity)
            answers = _estimates(plan, counts, 250).reshape(-1, sparsity // 2)
            wrong = (answers - exact).sum(axis=1)
            # Two neighbouring tens each: with the heavy ones or not, the last without a record.
            together = wrong[tens] + wrong[tens + 1]
            errors.append(float(np.abs(together).max()) / bound)
        found.append(failures(errors, _BETA))
    return found


def _published_noise(trials: int) -> Failures:
    """Ten queries of 20 keys of no records at all, so that all that is wrong is noise."""
    width, sparsity, queries = 128, 20, 10
    bound = published_projection_noise(width, sparsity, queries, 1.0, _DELTA, _BETA)
    errors = []
    for _ in range(trials):
        plan = _plan(width, width, "textbook", sparsity)
        answers = _estimates(plan, np.zeros(0, np.int64), sparsity * queries)
        errors.append(float(np.abs(answers.reshape(queries, -1).sum(axis=1)).max()) / bound)
    return failures(errors, _BETA / 2)


def _conjunctions(trials: int) -> list[Measured]:
    """All conjunctions of 2 literals of 14 attributes, of 4,096 different records, drawn once."""
    attributes, free, records = 14, 12, 2**12
    rng = np.random.default_rng(12)
    shares = rng.dirichlet(np.ones(2**attributes))
    counts = np.zeros(2**attributes, np.int64)
    counts[rng.choice(2**attributes, records, replace=False, p=shares)] = 1
    literals = list(itertools.combinations(range(attributes), attributes - free))
    number = len(literals) * 2 ** (attributes - free)
    asked = math.comb(attributes, free) * 2 ** (attributes - free)

    def sums(values: NDArray) -> NDArray[np.float64]:
        table = values.astype(np.float64).reshape((2,) * attributes)
        axes = range(attributes)
        return np.array([table.sum(axis=tuple({*axes} - {*kept})).ravel() for kept in literals])

    sparse = sums(np.ones(2**attributes))
    theorem = projection_theorem(_plan(2**12, 8, "tight", records), 1, number, _BETA)
    assert theorem is not None
    bound = theorem.bound(records)
    assert not bound.vacuous
    errors = []
    for _ in range(trials):
        plan = _plan(2**12, 8, "tight", records)
        found = sums(_estimates(plan, counts, 2**attributes)) - sums(counts)
        errors.append(float(np.abs(found).max()) / bound.max_error)
    differs = max(abs(number - asked), float(np.abs(sparse - records).max()))
    return [Agreement(differs, number, "a list of all"), failures(errors, _BETA)]


CLAIMS = [
    Claim(
        key="projections.norm",
        source="Blum and Roth 2011, Theorem 4.1",
        statement="T >= 4 x 64^2 ln(1/tau)/s^2 rows of r-wise independent signs, r >= 2 ln(1/tau),"
        " keep a squared norm within a factor 1 +- s except with probability tau",
        here="`hashing.distortion.Distortion.squared_norm`: for any T, dense or blocks, by moments"
        " up to r/2 = 24; s is 0.48 at T = 64 for tau 0.05, where the theorem asks for 216,000",
        measure=_norm,
        trials=400,
    ),
    Claim(
        key="projections.inner_products",
        source="Blum and Roth 2011, Corollary 4.2",
        statement="Projections keep inner products, too: within s (|x|^2 + |y|^2)/2",
        printed="the second line of the proof, 1/4 (norm^2 + norm^2), must be"
        " 1/4 (|A(x + y)|^2 - |A(x - y)|^2)",
        here="`Distortion.bound`: within a multiple of |x| |y|/sqrt(T), which is never larger",
        measure=_inner_products,
        trials=500,
    ),
    Claim(
        key="projections.size",
        source="Blum and Roth 2011, Algorithm 2",
        statement="T rows for k queries of n records with m keys at most: the distortion is at most"
        " sqrt(m) except with probability beta/2",
        printed="T's bracket is larger than s^-2 = (m + n^2)^2/(4m) by 2 sqrt(m); n is treated as"
        " public, though T(n) and 1/n tell it to a neighbour of n + 1 records",
        here="`claim_rows.published.published_projection`, only printed; T and N are public"
        " arguments",
        measure=_size,
    ),
    Claim(
        key="projections.independence",
        source="Blum and Roth 2011, Remark 4.4",
        statement="A random polynomial gives r-wise independent entries from a short key",
        printed="degree r; r - 1 is enough",
        here="`hashing.evaluation`: of two variables, of total degree r - 1",
        measure=_independence,
    ),
    Claim(
        key="projections.privacy",
        source="Blum and Roth 2011, Theorem 4.5",
        statement="A x + Laplace noise of scale sqrt(8 ln(1/delta))/epsilon is (epsilon, delta)-"
        "private: every column has norm 1",
        printed="sigma = epsilon/sqrt(8 ln(1/delta)) is an inverse scale; the composition of T"
        " coordinates is loose",
        here="`SparseProject`: Gaussian noise for an L2 sensitivity of exactly 1 (2 under"
        " replace-one), with 3.3 times less deviation at (1, 1e-9); `textbook` is as published",
        measure=_privacy,
    ),
    Claim(
        key="projections.largest_entry",
        source="Blum and Roth 2011, Lemma 4.6 and Corollary 4.7",
        statement="No entry of k projected queries exceeds (2kT/beta)^(1/r) 2 sqrt(m r/T),"
        " except with probability beta; with r = lg(2kT/beta), 4 sqrt(m lg(2kT/beta)/T)",
        printed="(kT/(2 beta))^(1/r); the 4 needs lg and an even r (with ln it is 2e)",
        here="`Distortion.largest_entry` (first), by the exact moments of an entry;"
        " `claim_rows.published.published_largest_entry` (second), as corrected",
        measure=_largest_entry,
        trials=500,
    ),
    Claim(
        key="projections.weighted_noise",
        source="Blum and Roth 2011, Lemma 4.8",
        statement="For T Laplace noises of scale b with weights in [-B, B], P(sum >= B a) <="
        " exp(-a^2/(6 T b^2)) for a <= T b, else exp(-a/(6b))",
        here="`noise.bound.weighted_noise_bound` (first, third): Chernoff's bound with the exact"
        " transform; `claim_rows.published.published_weighted_noise` (second, fourth); 64"
        " terms, and 2",
        measure=_weighted_noise,
    ),
    Claim(
        key="projections.published_noise",
        source="Blum and Roth 2011, Theorem 4.9",
        statement="Noise adds at most (16 sqrt(3)/epsilon) sqrt(m ln(4k/beta) ln(1/delta)"
        " (ln(2k/beta) + ln T)) to any of k answers, except with probability beta/2",
        printed="'SparseQueries' is SparseProject; the logarithms must be those of 8k/beta and, to"
        " base 2, of 8kT/beta",
        here="`claim_rows.published.published_projection_noise`",
        measure=_published_noise,
        trials=500,
    ),
    Claim(
        key="projections.accuracy",
        source="Blum and Roth 2011, Theorem 4.9",
        statement="SparseProject answers k queries of m keys within alpha n except with probability"
        " beta, alpha of order ln(k/beta) sqrt(m ln(1/delta))/(epsilon n) plus the distortion",
        here="`planning.sketches.projection_theorem`, for the T in use: its noise and its"
        " distortion; on the card and in `beam-dp plan`",
        measure=_accuracy,
    ),
    Claim(
        key="projections.conjunctions",
        source="Blum and Roth 2011, Definition 4.10, Remark 4.11, Corollary 4.12",
        statement="All conjunctions of d - lg n literals, which are n-sparse, in polynomial time:"
        " alpha of order (ln n ln d + ln(1/beta)) sqrt(ln(1/delta))/(epsilon sqrt(n))",
        here="`projection_theorem` with m = n and k = C(d, lg n) 2^(d - lg n), with negations;"
        " alpha is 0.59 for d = 14, n = 4,096 different records, epsilon 1, delta 1e-9, T = 4,096",
        measure=_conjunctions,
        trials=100,
    ),
]
