"""What is published of multiplicative weights over cells: the rule, and online runs."""

from __future__ import annotations

import functools
import itertools
import math
import pathlib
import sys

import numpy as np
from claim_rows.adversaries import CALIBRATIONS, FALL, Calibration, Cells, Taught, rate, teach
from claim_rows.claim import Claim, Failures, Slack, failures

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.online.plan import GRID
from beam_dp.mechanisms.online.private_mw import PrivateMW, PrivateMWPlan, plan_private_mw
from beam_dp.planning.answers import online_theorem
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.linear import LinearQuery
from beam_dp.queries.reader import LinearQueries
from beam_dp.secret.summaries.histogram import Histogram
from beam_dp.testing.audit import audit_law, largest_log_ratio

# Laws of whole runs on tiny domains, which the privacy tests are made of.
sys.path.append(str(pathlib.Path(__file__).parents[2] / "tests"))
from private_mw_laws import law_of, tiny_plan, whole_records

BETA, DELTA = 0.05, 1e-6
ERROR = 0.3  # that the theorem gives records for


def promise(delta: float) -> Guarantee:
    """Returns one of replacing a record."""
    return Guarantee(1.0, delta, "replace_one", "record", 1)


# The rule.


@functools.cache
def _taught(calibration: Calibration, gap: float, trials: int) -> list[Taught]:
    """What is made of hypotheses over 64 cells; of data on 1, 2, 16 and 32 of them, and any."""
    rng, found = np.random.default_rng(1), []
    for trial in range(max(4, trials)):
        held = (1, 2, 16, 32)[trial % 4]
        data = np.zeros(64)
        data[:held] = 1 / held if trial < 4 else rng.dirichlet(np.ones(held))
        found.append(teach(rng, Cells(data), gap, rate(calibration, gap), 64))
    return found


def _drop(trials: int) -> list[Slack]:
    """The fall of the entropy that is promised, and the least that was seen."""
    found = []
    for calibration in CALIBRATIONS:
        for gap in (0.1, 0.3):
            promised = gap**2 / 4 if calibration == "textbook" else 2 * gap**2
            runs = _taught(calibration, gap, trials)
            least = min(each.least_drop for each in runs)
            found.append(Slack(promised, least, sum(each.updates for each in runs), FALL))
    return found


def _updates(trials: int) -> list[Slack]:
    found = []
    for calibration in CALIBRATIONS:
        for gap in (0.1, 0.3):
            steps = 4.0 if calibration == "textbook" else 0.5
            most = math.floor(steps * math.log(64) / gap**2)
            runs = _taught(calibration, gap, trials)
            seen = max(each.updates for each in runs)
            found.append(Slack(seen, most, len(runs), "updates"))
    return found


def domain_of(*sizes: int) -> Domain:
    """Of integer attributes."""
    return Domain(tuple(IntegerAttribute(f"a{i}", 0, size - 1) for i, size in enumerate(sizes)))


class Online:
    """Runs of 14 queries over 8 cells.

    Args:
        delta: of the promise.
        calibration: of the runs.
        total: N; None for as many records as the theorem asks for an error of ``ERROR``.
        is_peaked: whether most records are in one cell, so that there is much to learn; else there
            are so many in it that the first hypothesis is wrong by little more than the threshold,
            and comparisons are as hard as can be.
    """

    def __init__(
        self, delta: float, calibration: Calibration, total: int | None, is_peaked: bool = False
    ) -> None:
        self._domain = domain_of(4, 2)

        def plan(number: int) -> PrivateMWPlan:
            return plan_private_mw(
                self._domain,
                promise(delta),
                number,
                num_questions=14,
                failure_probability=BETA,
                calibration=calibration,
            )

        self.total = total or online_theorem(plan(10**6)).records_needed(ERROR) or 0
        self._plan = plan(self.total)
        threshold = self._plan.settle(self.total).threshold / GRID / self.total
        share = 0.86 if is_peaked else min(0.86, 1 / 8 + 1.05 * threshold)
        self._counts = np.full(8, round((1 - share) / 7 * self.total), np.int64)
        self._counts[0] += self.total - self._counts.sum()
        make = LinearQueries(self._domain)
        self.queries = [
            *make.marginal_cells(["a0", "a1"]),
            *make.marginal_cells(["a0"]),
            *make.marginal_cells(["a1"]),
        ]

    def start(self) -> PrivateMW:
        """Returns a run."""
        return PrivateMW(self._plan, Histogram(self._domain, self._counts), NoiseSource())

    def exact(self, query: LinearQuery) -> float:
        """Returns the sum of a query, in records."""
        return query.count(self._counts) / GRID


def _errors(trials: int, online: Online, bound: float | None = None) -> Failures:
    """The largest error of a run as a share of a bound, by default that of each answer."""
    found = []
    for _ in range(trials):
        run, worst = online.start(), 0.0
        for query in online.queries:
            answer = run.answer(query)
            most = answer.bound if bound is None else bound
            assert most is not None
            worst = max(worst, abs(answer.value - online.exact(query)) / most)
        found.append(worst)
    return failures(found, BETA)


def _of_delta(delta: float, trials: int) -> list[Failures]:
    return [
        _errors(trials, Online(delta, "textbook", 200_000)),
        _errors(trials, Online(delta, "textbook", 2_000_000, is_peaked=True)),
    ]


def _lecture(trials: int) -> list[Failures]:
    settings = (
        Online(delta, each, None, is_peaked=True) for delta in (0.0, DELTA) for each in CALIBRATIONS
    )
    return [_errors(trials, online, ERROR * online.total) for online in settings]


def _constructions(trials: int) -> list[Failures]:
    settings = ((0.0, False), (0.0, True), (DELTA, False), (DELTA, True))
    return [_errors(trials, Online(delta, "tight", 20_000, peak)) for delta, peak in settings]


def _gaps(trials: int, online: Online) -> Failures:
    """Of every update, what its query was wrong by, in its direction, and what its answer is.

    A trial is over 1 where a query was wrong by less than the gap, or its answer by more.
    """
    found = []
    for _ in range(trials):
        run, worst = online.start(), 0.0
        for query in online.queries:
            before = run.settings.total * run._hypothesis.mean(query)
            answer = run.answer(query)
            if answer.route != "update":
                continue
            wrong = math.copysign(1.0, run.step(query)) * (online.exact(query) - before)
            worst = max(worst, run.settings.gap / wrong if wrong > 0 else math.inf)
            if run.plan.calibration == "tight":
                worst = max(worst, abs(answer.value - online.exact(query)) / run.settings.gap)
        found.append(worst)
    return failures(found, BETA)


def _directions(trials: int) -> list[Failures]:
    return [_gaps(trials, Online(delta, "textbook", 400_000)) for delta in (0.0, DELTA)]


def _sequences(trials: int) -> list[Failures]:
    return [_gaps(trials, Online(delta, "tight", 20_000)) for delta in (0.0, DELTA)]


def _privacy(trials: int) -> list[Slack]:
    """The exact law of whole runs on tiny domains.

    As published: an analyst who asks by the first answer, on all neighbours of 3 cells. With one
    update: 33 questions on 7 cells, of which a replacement moves 32 one way and the last the other.
    """
    with whole_records():
        plan = tiny_plan("replace_one", 0.0, "textbook", max_error=0.99)
        audit = audit_law(law_of(plan), range(3), plan.guarantee, num_others=2)
        published = Slack(audit.epsilon, plan.guarantee.epsilon, audit.num_pairs, "epsilon")
        total = 200
        plan = plan_private_mw(
            domain_of(7), promise(0.0), total, num_questions=33, max_updates=1, max_error=0.3
        )
        law = law_of(plan, interact=_moved_together, low=0, high=total)
        worst, counts = 0.0, range(20, total, 20)
        for count in counts:
            data = (0,) * count + (1,) * (total - count)
            other = (0,) * (count - 1) + (1,) * (total - count + 1)
            worst = max(worst, largest_log_ratio(law(data), law(other)))
    return [published, Slack(worst, 1.0, len(counts), "epsilon")]


def _moved_together(run: PrivateMW) -> None:
    """All sets of cells that hold the first and not the second, then the second."""
    make = LinearQueries(run.plan.domain)
    for size in range(6):
        for others in itertools.combinations(range(2, 7), size):
            run.answer(make.conjunction({"a0": [0, *others]}))
    run.answer(make.conjunction({"a0": 1}))


CLAIMS = [
    Claim(
        key="multiplicative_weights.step",
        source="Dwork and Roth 2014, Algorithm 5 and the proof of Theorem 4.10",
        statement="an update of a query that is wrong by a or more, its direction known, lowers"
        " the relative entropy of the data to the hypothesis by a^2/4, with eta = a/2",
        printed="x^0 for x^1; the line that uses exp(-y) <= 1 - y + y^2 is no equation; with |f(x)"
        " - v| = |f(x) - f(w)| = a the direction may be wrong",
        here="the same, and 2 a^2 with eta = 4 a (Hoeffding's lemma); directions are those of the"
        " question that was above the threshold. a of 0.1, 0.3; first eta = a/2, then 4 a",
        measure=_drop,
        trials=8,
    ),
    Claim(
        key="multiplicative_weights.updates",
        source="Dwork and Roth 2014, Theorem 4.10",
        statement="no more than 1 + 4 ln(U) / a^2 updates of queries that are wrong by a or more",
        printed="the 1 is not needed; > a in one place, >= a in another; f(x) - f_t(x^t)",
        here="floor(4 ln(U) / a^2), and floor(ln(U) / (2 a^2)) with eta = 4 a, against an adversary"
        " who knows the data; U = 64, a of 0.1, 0.3; first eta = a/2, then 4 a",
        measure=_updates,
        trials=8,
    ),
    Claim(
        key="multiplicative_weights.online",
        source="Dwork and Roth 2014, Algorithm 6",
        statement="two questions a query; the one above the threshold T says the direction, and its"
        " noisy value E is the answer; every update is of a query wrong by alpha or more",
        printed="the second of two lines that let T is the else, for delta > 0, its log k is"
        " ln(2|Q|), c is rounded up, noise is divided by n; E is called positive and above T: it"
        " has noise of its own and may be anything",
        here="`PrivateMW`, textbook: alpha N over what updates were wrong by; delta 0, then 1e-6",
        measure=_directions,
        trials=500,
    ),
    Claim(
        key="multiplicative_weights.privacy",
        source="Dwork and Roth 2014, Theorem 4.13",
        statement="online multiplicative weights are as private as their NumericSparse",
        printed="(epsilon, 0): (epsilon, delta) where delta > 0",
        here="`plan_private_mw`: exact laws; as published (noise for 5 updates, 2 queries), then"
        " tight with one update and 33 questions",
        measure=_privacy,
        trials=1,
    ),
    Claim(
        key="multiplicative_weights.pure",
        source="Dwork and Roth 2014, Theorem 4.14",
        statement="all answers are within 3 alpha except with probability beta, for any alpha of at"
        " least 36 ln U (ln|Q| + ln(32 ln U / (alpha^2 beta))) / (epsilon alpha^2 n)",
        printed="32 for 36; for alpha above the least, T falls below 2 alpha, and an update may be"
        " of a query wrong by T/2 only; at most one question is below T: at least one",
        here="`planning.answers.online_theorem`, with the threshold max(T, 2 alpha): n ="
        " 200,000, errors just above the threshold; n = 2,000,000, most records in a cell",
        measure=functools.partial(_of_delta, 0.0),
        trials=500,
    ),
    Claim(
        key="multiplicative_weights.approximate",
        source="Dwork and Roth 2014, Theorem 4.15",
        statement="with delta the same for alpha of at least (2 + 32 sqrt 2) sqrt(ln U ln(2/delta))"
        " (ln|Q| + ln(32 ln U / (alpha^2 beta))) / (alpha epsilon n)",
        printed="for any larger alpha, as in Theorem 4.14",
        here="the same; delta 1e-6",
        measure=functools.partial(_of_delta, DELTA),
        trials=500,
    ),
    Claim(
        key="multiplicative_weights.lecture",
        source="lecture on online private multiplicative weights, Theorem 5",
        statement="answers within alpha n from n = O~(sqrt(ln U ln(1/delta)) ln|Q| / (epsilon"
        " alpha^2)) records",
        printed="consistent with Theorem 4.15: no constants, so that nothing is wrong",
        here="`online_theorem(plan).records_needed(0.3)`: that many records; pure and delta, each"
        " as published and tight",
        measure=_lecture,
        trials=300,
    ),
    Claim(
        key="multiplicative_weights.sequences",
        source="Blum and Roth 2011, section 3.1; Gupta, Roth and Ullman 2012",
        statement="a database update sequence: each query is wrong by alpha or more on the"
        " hypothesis, and its answer by less than alpha; one of B(alpha) at most is an iterative"
        " database construction",
        here="except with probability beta, a run of `PrivateMW`, tight, learns from such a"
        " sequence; delta 0, then 1e-6",
        measure=_sequences,
        trials=500,
    ),
    Claim(
        key="multiplicative_weights.constructions",
        source="Blum and Roth 2011, Theorem 3.3",
        statement="a construction of B(alpha) updates answers k queries within alpha n, for alpha ="
        " 3000 sqrt(B) ln(4/delta) ln(k/beta) / (epsilon n)",
        printed="a constant of a general theorem: for sparse queries with m = 100, k = 1000,"
        " epsilon 1, delta 1e-9 and n = 10^6, alpha = 1.91",
        here="NumericSparse with c = B: (1 + 16 sqrt 2) sqrt(B ln(2/delta)) (...) / (epsilon n), or"
        " tight, measured: delta 0, then 1e-6, each with errors just above the threshold and with"
        " most records in a cell",
        measure=_constructions,
        trials=500,
    ),
]
