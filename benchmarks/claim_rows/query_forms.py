"""What is published of forms of queries: conjunctions, disjunctions, parities, negations."""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np
from claim_rows.claim import Agreement, Claim, Failures, Slack, failures

from beam_dp.domain.files import read_domain
from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.checks import Calibration
from beam_dp.mechanisms.online.sparse_mw import plan_sparse_mw, release_conjunctions
from beam_dp.planning.answers import online_theorem
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries import sparse
from beam_dp.queries.linear import LinearQuery, negation
from beam_dp.queries.linear_workload import parse_linear_workload
from beam_dp.queries.sparse import RowConjunctions, SparseQuery, conjunction_of_text

Holds = Callable[[list[bool]], bool]

_BETA = 0.05
_UNIT = 2**16


def _binary(num_bits: int) -> Domain:
    return read_domain({f"a{bit}": 2 for bit in range(num_bits)})


def _rows(num_bits: int) -> Iterator[tuple[int, ...]]:
    return itertools.product((0, 1), repeat=num_bits)


def _scanned(num_bits: int, num_literals: int, form: Holds) -> Counter[tuple[int, ...]]:
    """The tables of all formulas of so many literals, each evaluated row by row."""
    return Counter(
        tuple(
            int(form([row[bit] == sign for bit, sign in zip(bits, signs, strict=True)]))
            for row in _rows(num_bits)
        )
        for bits in itertools.combinations(range(num_bits), num_literals)
        for signs in itertools.product((0, 1), repeat=num_literals)
    )


def _conjunctions(trials: int) -> Agreement:
    """Both forms: as many as stated, each with the count that a scan of the records finds."""
    generator, difference, cases = np.random.default_rng(1), 0, 0
    for (num_bits, num_literals), (name, form) in itertools.product(
        ((3, 1), (4, 2), (5, 3), (6, 4)), (("conjunctions", all), ("disjunctions", any))
    ):
        workload = parse_linear_workload(f"{name}:{num_literals}", _binary(num_bits))
        counts = generator.integers(0, 100, 2**num_bits)
        stated = math.comb(num_bits, num_literals) * 2**num_literals
        tables = _scanned(num_bits, num_literals, form)
        scanned = sorted(int(np.dot(table, counts)) for table in tables.elements())
        found = sorted((workload.counts(counts) // _UNIT).tolist())
        difference += abs(len(found) - stated) + abs(len(scanned) - stated)
        difference += sum(abs(one - other) for one, other in zip(found, scanned, strict=True))
        cases += stated
    return Agreement(difference, cases, "a scan of the records")


def _negations(trials: int) -> list[Agreement | Slack]:
    """S of 1 - q is N less S of q; and how many more functions there are with all negations."""
    generator, difference, cases, growth = np.random.default_rng(2), 0.0, 0, 0.0
    domain = read_domain({"a": 2, "b": 3, "c": 4})
    specs = ("conjunctions:2", "conjunctions:3", "disjunctions:2", "intervals:c", "marginals:a,b")
    for spec in specs:
        queries = list(parse_linear_workload(spec, domain))
        negations: list[LinearQuery] = []
        for query in queries:
            if query.values().all():
                continue  # nothing is left of 1 - q
            other = negation(query)
            counts = generator.integers(0, 100, domain.num_cells)
            exact = int(np.dot(1 - query.values(), counts))
            difference += abs(other.count(counts) / _UNIT - exact)
            cases += 1
            negations.append(other)
        both = {each.values().tobytes() for each in [*queries, *negations]}
        growth = max(growth, len(both) / len({each.values().tobytes() for each in queries}))
    return [
        Agreement(difference, cases, "a sum over cells of 1 - q"),
        Slack(growth, 2.0, len(specs), "times as many functions"),
    ]


def _listing(trials: int) -> list[Agreement | Slack]:
    """The support of each form against a scan of all 2^d rows, and the rows that were looked at."""
    generator, wrong, cases, seen = np.random.default_rng(3), 0, 0, 0.0
    looked_at = [0]
    listed = sparse._rows

    def counted(*arguments: object) -> Iterator[str]:
        for row in listed(*arguments):  # type: ignore[arg-type]
            looked_at[0] += 1
            yield row

    forms: dict[str, tuple[Callable[..., SparseQuery], Holds]] = {
        "conjunction": (lambda d, fixed, _: sparse.row_conjunction(d, fixed), lambda _: True),
        "disjunction": (sparse.row_disjunction, any),
        "parity": (sparse.row_parity, lambda held: sum(held) % 2 == 1),
    }
    with mock.patch.object(sparse, "_rows", counted):
        for num_bits, num_free in itertools.product((6, 9), (1, 3, 5)):
            for make, form in forms.values():
                order = generator.permutation(num_bits).tolist()
                free = sorted(order[:num_free])
                fixed = {bit: int(generator.integers(2)) for bit in order[num_free:]}
                looked_at[0] = 0
                found = make(num_bits, fixed, free)
                # Of one free bit a disjunction and a parity hold on half of the rows: the worst.
                seen = max(seen, looked_at[0] / found.sparsity)
                scanned = {
                    "".join(map(str, row))
                    for row in _rows(num_bits)
                    if all(row[bit] == value for bit, value in fixed.items())
                    and form([row[bit] == 1 for bit in free])
                }
                wrong += len(scanned ^ set(found.elements))
                cases += 1
    return [
        Agreement(wrong, cases, "a scan of all rows"),
        Slack(seen, 2.0, cases, "rows looked at for each element"),
    ]


def _family(trials: int) -> Agreement:
    """The functions of a family against all formulas, and their number and size as stated."""
    difference, cases = 0, 0
    for num_bits, num_free in ((4, 0), (4, 2), (5, 1), (5, 3), (6, 2)):
        literals = num_bits - num_free
        for is_monotone in (True, False):
            family = RowConjunctions(num_bits, literals, is_monotone)
            held = [set(conjunction_of_text(text).elements) for text in family]
            rows = ["".join(map(str, row)) for row in _rows(num_bits)]
            found = Counter(tuple(int(row in each) for row in rows) for each in held)
            scanned = _scanned(num_bits, literals, all)
            if is_monotone:  # those that the row of ones is in
                scanned = Counter({t: number for t, number in scanned.items() if t[-1]})
            stated = math.comb(num_bits, num_free) * (1 if is_monotone else 2**literals)
            difference += (found - scanned).total() + (scanned - found).total()
            difference += abs(len(family) - stated)
            difference += sum(len(each) != 2**num_free for each in held)
            cases += stated
    return Agreement(difference, cases, "all formulas, row by row")


def _release(trials: int) -> list[Failures]:
    """All answers of a release, against their bounds."""
    settings = (
        (RowConjunctions(12, 10, is_monotone=True), 1e-9, "replace_one", 20_000),
        (RowConjunctions(5, 4), 0.0, "replace_one", 5_000),
        (RowConjunctions(8, 6, is_monotone=True), 1e-9, "add_or_remove_one", "noisy"),
    )
    found = []
    for number, (family, delta, neighboring, num_records) in enumerate(settings):
        guarantee = Guarantee(4.0, delta, neighboring, "record", 1)
        size = 20_000 if num_records == "noisy" else num_records
        bits = np.random.default_rng(number).random((size, family.num_bits)) < 0.95
        rows = ["".join(row) for row in np.where(bits, "1", "0").tolist()]
        counts = Counter(rows)
        exact = [sum(map(counts.__getitem__, conjunction_of_text(t).elements)) for t in family]
        errors = []
        for _ in range(trials):
            released = release_conjunctions(rows, family, guarantee, num_records)
            errors.append(
                max(
                    abs(answer.value - truth) / (answer.bound or 0.0)
                    for answer, truth in zip(released.answers, exact, strict=True)
                )
            )
        found.append(failures(errors, _BETA))
    return found


@functools.cache
def _records(
    num_bits: int, free: int, delta: float, calibration: Calibration, *, is_monotone: bool = True
) -> int:
    """The least number of records for an error of a tenth of them."""
    signs = 1 if is_monotone else 2 ** (num_bits - free)
    plan = plan_sparse_mw(
        Guarantee(1.0, delta, "replace_one", "record", 1),
        10**6,
        max_sparsity=2**free,
        num_questions=math.comb(num_bits, free) * signs,
        calibration=calibration,
    )
    found = online_theorem(plan).records_needed(0.1)
    assert found is not None
    return found


def _order(trials: int) -> list[Slack]:
    """By how much the records that are needed grow with k, with ln(1/delta), and with signs."""
    calibrations: tuple[Calibration, ...] = ("tight", "textbook")
    sizes = ((20, 1), (20, 2), (30, 4), (30, 7), (200, 1), (200, 2), (60_000, 1))
    settings = [(d, k, how) for d, k in sizes for how in calibrations]
    by_bits = [_records(d, 2 * k, 1e-9, how) / _records(d, k, 1e-9, how) for d, k, how in settings]
    tight = [_records(d, k, 1e-9, "tight") / _records(d, k, 1e-9, "textbook") for d, k in sizes]
    # Of the published noise; a tight one is less, and grows to it as delta falls.
    by_delta = [
        _records(d, k, 1e-16, "textbook") / _records(d, k, 1e-8, "textbook") for d, k in sizes
    ]
    # What is measured is a share of how much the logarithm of the number of conjunctions grows.
    by_signs = []
    for d, k, how in itertools.product((12, 20), (1, 2, 4), calibrations):
        grown = _records(d, k, 1e-9, how, is_monotone=False) / _records(d, k, 1e-9, how)
        by_signs.append((grown - 1) / ((d - k) * math.log(2) / math.log(math.comb(d, k))))
    return [
        Slack(max(by_bits), 2**1.5, len(by_bits), "times the records, twice the free bits"),
        Slack(max(by_delta), math.sqrt(2), len(by_delta), "times the records, ln(1/delta) doubled"),
        Slack(max(tight), 1.0, len(tight), "of the records of the published noise"),
        Slack(max(by_signs), 1.0, len(by_signs), "of the growth of the logarithm, with signs"),
    ]


CLAIMS = [
    Claim(
        key="query_forms.conjunctions",
        source="Dwork and Roth 2014, Example 4.1",
        statement="a conjunction of literals is a linear query; over d binary attributes there are "
        "C(d, w) 2^w of w literals, and as many disjunctions",
        here="`conjunctions:w`, `disjunctions:w`: one less the conjunction of negated literals",
        measure=_conjunctions,
        trials=1,
    ),
    Claim(
        key="query_forms.negation",
        source="Dwork and Roth 2014, section 4",
        statement="with q, 1 - q is a linear query; a class that contains all its negations is at "
        "most twice as large",
        here='`{"not": ...}`, `negation`: no cell is listed; its answer has the noise of the '
        "number of records too, where that is noisy",
        measure=_negations,
        trials=1,
    ),
    Claim(
        key="query_forms.listing",
        source="Blum and Roth 2011, section 2.2",
        statement="conjunctions, disjunctions and parities list the m elements where they are not "
        "0 in time O(m)",
        here="`row_conjunction`, `row_disjunction`, `row_parity`, of d - lg m fixed bits or so: at "
        "most two rows are looked at for each element",
        measure=_listing,
        trials=1,
    ),
    Claim(
        key="query_forms.family",
        source="Blum and Roth 2011, section 2.2, Definition 3.9",
        statement="a conjunction of d - k literals over {0,1}^d holds on 2^k elements, n of them "
        "for k = lg n free bits; there are C(d, k) without negations and C(d, k) 2^(d-k) with them",
        here="`RowConjunctions`, each listed once",
        measure=_family,
        trials=1,
    ),
    Claim(
        key="query_forms.release",
        source="Blum and Roth 2011, Corollary 3.11",
        statement="sparse multiplicative weights that are asked all conjunctions of d - k literals "
        "in turn answer all within alpha n, except with probability beta, in time 2^k for each",
        here="`release_conjunctions`: alpha follows from n; each answer states its bound",
        measure=_release,
        trials=600,
    ),
    Claim(
        key="query_forms.records",
        source="Blum and Roth 2011, Corollary 3.11",
        statement="for k free bits, n of order k^1.5 ln(1/delta) ln(d/beta) / "
        "(epsilon alpha^2) is enough",
        printed="counts C(d, k) conjunctions: with negations (d - k) ln 2 joins k ln d; the root "
        "of ln(1/delta) is enough, and ln(1/alpha) is left out",
        here="sqrt((k + ln(1/alpha)) ln(1/delta)) ln(|Q|/(alpha beta)) / (epsilon alpha^2), as "
        "`online_theorem` computes it",
        measure=_order,
        trials=1,
    ),
]
