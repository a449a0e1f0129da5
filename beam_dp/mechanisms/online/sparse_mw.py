"""Online multiplicative weights for sparse queries over any universe."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from beam_dp.checks import check_is
from beam_dp.domain.texts import Element
from beam_dp.errors import InputError
from beam_dp.flags.flag import integer, option
from beam_dp.mechanisms.checks import MAX_SPARSITY, Calibration, NumRecords
from beam_dp.mechanisms.online.plan import OnlinePlan, Settings, ready
from beam_dp.mechanisms.online.private_mw import OnlineMW, PrivateAnswer
from beam_dp.mechanisms.resources import sketch_bytes
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger.entries import Token
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.noise.bound import FAILURE_PROBABILITY
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.linear import VALUE_BITS
from beam_dp.queries.sparse import RowConjunctions, SparseQuery, conjunction_of_text
from beam_dp.secret.summaries.sparse_counts import KeyCounts

if TYPE_CHECKING:
    from beam_dp.privacy.ledger.ledger import Ledger


@dataclasses.dataclass(frozen=True, kw_only=True)
class SparseMWPlan(OnlinePlan):
    """The plan of a ``SparseMW`` run; a query names at most m = ``max_sparsity`` elements."""

    rounds_up: ClassVar[bool] = False

    mechanism: str = "sparse_mw"
    max_sparsity: int = dataclasses.field(
        metadata=option(
            "sparse_mw: the largest number of keys in a query",
            "M",
            integer,
            limits={"least": 1, "most": MAX_SPARSITY},
        )
    )

    @property
    def universe(self) -> None:
        """None: queries about keys have no domain."""

    @property
    def memory_bytes(self) -> float:
        """The worker's memory for a run, without the counts of keys."""
        return sketch_bytes(0)

    def _stated_more(self) -> dict[str, Any]:
        return {"max_sparsity": self.max_sparsity}

    def num_slots(self, max_error: float) -> int:
        """Returns s, the number of slots of the hypothesis for an error alpha; see ``num_slots``.

        s is the least number for which a slot is free even after one more update than ln s allows
        and, if given, after ``max_updates`` updates.
        """
        least = 2 if self.max_updates is None else self.max_sparsity * self.max_updates + 1
        return num_slots(self.max_sparsity, max_error, self.calibration, least)

    def divergence_at(self, max_error: float) -> float:
        """Returns ln s, the relative entropy from data in a single slot to the uniform start."""
        return math.log(self.num_slots(max_error))

    def published_divergence(self, max_error: float) -> float:
        """Returns ln s + 1."""
        return self.divergence_at(max_error) + 1

    def least_error(self, updates: int) -> float:
        """Returns an alpha that needs at most ``updates`` = c; s = m (c + 1) + 1 slots, or m c."""
        if self.calibration == "tight":
            divergence = math.log(self.max_sparsity * (updates + 1) + 1)
            return math.sqrt(divergence / (2 * (updates + 1))) * (1 + 1e-9)
        return math.sqrt(4 * (math.log(self.max_sparsity * updates) + 1) / updates)


def plan_sparse_mw(
    guarantee: Guarantee,
    num_records: NumRecords,
    *,
    max_sparsity: int,
    num_questions: int,
    failure_probability: float = FAILURE_PROBABILITY,
    calibration: Calibration = "tight",
    max_error: float | None = None,
    max_updates: int | None = None,
) -> SparseMWPlan:
    """Returns the plan of a run of ``SparseMW``.

    ``max_sparsity``: m, from 1 to 2^31; queries with more elements are refused.
    ``max_updates``: here the number may also exceed the number of updates that alpha needs.
    Other arguments: see ``plan_private_mw``.

    Example:
        >>> promise = Guarantee(1.0, 0, "replace_one", "record", 1)
        >>> plan = plan_sparse_mw(
        ...     promise, 10**6, max_sparsity=100, num_questions=1000, max_error=0.1)
        >>> plan.num_slots(0.1), plan.settle(10**6).noise.max_above
        (54601, 545)
    """
    check_is("guarantee", guarantee, Guarantee)
    plan = SparseMWPlan(
        guarantee=guarantee,
        num_records=num_records,
        num_questions=num_questions,
        failure_probability=failure_probability,
        calibration=calibration,
        max_error=max_error,
        max_updates=max_updates,
        loss=Loss.pure(guarantee.epsilon),
        max_sparsity=max_sparsity,
    )
    return ready(plan)


def num_slots(max_sparsity: int, max_error: float, calibration: Calibration, least: int = 2) -> int:
    """Returns s, the number of slots of a sparse hypothesis.

    ``least``: a lower bound on s.

    Accuracy: each update for an error of at least alpha lowers a relative entropy of at most ln s
    by 2 alpha^2 (``textbook``: alpha^2 / 4), so B = floor(ln s / (2 alpha^2)) updates are enough.
    The proof requires that one slot is free even after B + 1 updates of m elements: without this
    slot the claim is false. ``tight``: the least s with s >= m (B + 1) + 1. ``textbook``: the
    least s with s / (ln s + 1) >= 4 m / alpha^2, where B = 4 (ln s + 1) / alpha^2.

    Reference: Blum and Roth (2011), Lemma 3.7, corrected: their potential leaves out the data that
    no query has asked about.
    """
    slots = max(2, least)
    while True:
        # ``needed`` never falls as s grows, so this loop stops at the least s.
        if calibration == "tight":
            updates = math.floor(math.log(slots) / (2 * max_error**2))
            needed = max_sparsity * (updates + 1) + 1
        else:
            needed = math.ceil(4 * max_sparsity / max_error**2 * (math.log(slots) + 1))
        if needed <= slots:
            return slots
        slots = needed


# If the running total is outside these limits, the weights are summed again, long before the total
# becomes imprecise.
_LEAST, _MOST = 2.0**-20, 2.0**200


class SparseWeights:
    """A public distribution over slots: one slot per updated element, and free slots.

    All elements that were never updated have the weight of one free slot, for any universe. Each
    newly updated element takes a slot. All data outside the earlier queries count as one free slot,
    so at least one slot stays free. c updates of at most m elements need m c + 1 slots; after that,
    slots are added.

    Reference: Blum and Roth (2011), Algorithm 1, with one slot that always stays free.
    """

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._logs: dict[Element, float] = {}
        self._renew()

    @property
    def weights(self) -> dict[Element, float]:
        """The weights of all updated elements, as a copy."""
        return {element: weight / self._total for element, weight in self._scaled.items()}

    @property
    def common_weight(self) -> float:
        """The weight of every element that was not updated."""
        return self._common / self._total

    @property
    def num_free(self) -> int:
        """The number of free slots."""
        return self.num_slots - len(self._logs)

    def mean(self, query: SparseQuery) -> float:
        """Returns the mean of a query, in [0, 1]. Cost: O(m)."""
        return min(1.0, query.weigh(self._scaled, self._common) / self._total)

    def update(self, query: SparseQuery, step: float) -> None:
        """Multiplies each weight by exp(step q) and normalises; a step > 0 raises the mean of q."""
        for element, numerator in zip(query.elements, query.numerators, strict=True):
            if element not in self._logs and self.num_free == 1:
                self.num_slots += 1
                self._total += self._common
            old = self._scaled.get(element, self._common)
            moved = self._logs.get(element, 0.0) + step * numerator / (1 << VALUE_BITS)
            self._logs[element] = moved
            self._scaled[element] = math.exp(moved - self._offset)
            self._total += self._scaled[element] - old
        if not _LEAST < self._total < _MOST:
            self._renew()

    def _renew(self) -> None:
        """Scales the weights to the sum 1."""
        largest = max(self._logs.values(), default=0.0)
        largest = max(largest, 0.0)  # the logarithm for a free slot
        total = self.num_free * math.exp(-largest)
        total += math.fsum(math.exp(log - largest) for log in self._logs.values())
        self._offset = largest + math.log(total)
        self._common = math.exp(-self._offset)
        self._scaled = {
            element: math.exp(log - self._offset) for element, log in self._logs.items()
        }
        self._total = self.num_free * self._common + math.fsum(self._scaled.values())


class SparseMW(OnlineMW[SparseQuery]):
    """Answers adaptively chosen sparse queries over a universe of any size, even infinite.

    Privacy: ``plan.guarantee``, for any number of answers together and for any alpha, m, number of
    slots and given number of records. The guarantee is that of ``NumericSparse``, as for
    ``PrivateMW``: one record has one key, so a record changes a query's sum by at most one, under
    either relation. A noisy number of records costs a twentieth of epsilon. Slots are assigned to
    elements of queries that caused an update, never to keys of the data; everything else is
    computed from queries and released values.

    Accuracy: with probability at least 1 - beta, every answer to the first K different queries is
    within its ``bound``, as for ``PrivateMW`` with ln s in place of ln|X|. s depends on m and alpha
    alone, see ``num_slots``: all data whose keys no query has asked about count as one slot.

    Edge cases: for a query without elements the answer is about 0. Empty data take the same code
    path. After K questions, answers stay private but have no bound. After the last update, answers
    come from the hypothesis and the data are not read again. Slots never run out.

    Args:
        plan: see ``plan_sparse_mw``. The constructor spends the whole ``plan.loss``.
        records: the exact counts by key; secret.
        noise: the source of all noise.
        ledger_token: the token of the ledger entry that paid, if any. A token pays for one run: the
            constructor does not refuse a second run with the same token.

    Cost: O(m) per query and per update, for any universe and data; memory O(m) for each update and
    each query asked.
    Reference: Blum and Roth (2011), Algorithm 1, corrected; Dwork and Roth (2014), Algorithm 6;
    Lyu, Su and Li (2017) for the noise.

    Example:
        >>> from beam_dp.mechanisms.online.sparse_mw import plan_sparse_mw
        >>> from beam_dp.privacy.guarantee import Guarantee
        >>> promise = Guarantee(1.0, 0, "replace_one", "record", 1)
        >>> plan = plan_sparse_mw(promise, 80_000, max_sparsity=2, num_questions=10)
        >>> records = KeyCounts({"alice@example.org": 80_000})
        >>> run = SparseMW(plan, records, NoiseSource())
        >>> query = SparseQuery({"alice@example.org": 1, "bob@example.org": 1})
        >>> answer = run.answer(query)
        >>> answer.route, abs(answer.value - 80_000) < answer.bound, run.answer(query) == answer
        ('update', True, True)
    """

    plan: SparseMWPlan
    _hypothesis: SparseWeights

    def __init__(
        self,
        plan: SparseMWPlan,
        records: KeyCounts,
        noise: NoiseSource,
        *,
        ledger_token: Token | None = None,
    ) -> None:
        super().__init__(plan, records.num_records, noise, ledger_token)
        self._hypothesis = SparseWeights(plan.num_slots(self.settings.max_error))
        self._counts = records.counts

    @property
    def weights(self) -> dict[Element, float]:
        """The hypothesis: a copy of the weights of all updated elements; public."""
        return self._hypothesis.weights

    @property
    def common_weight(self) -> float:
        """The hypothesis: the weight of every element without an update; public."""
        return self._hypothesis.common_weight

    @property
    def num_slots(self) -> int:
        """The number of weights of the hypothesis, including free slots; public."""
        return self._hypothesis.num_slots

    def _exact(self, query: SparseQuery) -> int:
        return query.count(self._counts)

    def _check(self, query: Any) -> None:
        if not isinstance(query, SparseQuery):
            raise InputError("query", query, "must be a SparseQuery")
        if query.sparsity > self.plan.max_sparsity:
            condition = f"must have at most max_sparsity = {self.plan.max_sparsity:,}"
            raise InputError("query", f"{query.sparsity:,} elements", condition)


@dataclasses.dataclass(frozen=True, repr=False)
class ReleasedConjunctions:
    """The answers to a family of conjunctions; public."""

    family: RowConjunctions
    plan: SparseMWPlan
    settings: Settings
    answers: tuple[PrivateAnswer, ...]

    def __len__(self) -> int:
        return len(self.answers)

    def items(self) -> Iterator[tuple[str, PrivateAnswer]]:
        """Yields pairs of a conjunction, as ``RowConjunctions`` writes it, and the answer."""
        return zip(self.family, self.answers, strict=True)


def plan_conjunctions(
    family: RowConjunctions,
    guarantee: Guarantee,
    num_records: NumRecords,
    *,
    failure_probability: float = FAILURE_PROBABILITY,
    calibration: Calibration = "tight",
) -> SparseMWPlan:
    """Returns the plan of ``release_conjunctions``: one question per conjunction.

    Example:
        >>> promise = Guarantee(1.0, 1e-9, "replace_one", "record", 1)
        >>> plan = plan_conjunctions(RowConjunctions(40, 38, is_monotone=True), promise, 10**6)
        >>> plan.num_questions, plan.max_sparsity
        (780, 4)
    """
    return plan_sparse_mw(
        guarantee,
        num_records,
        max_sparsity=family.sparsity,
        num_questions=len(family),
        failure_probability=failure_probability,
        calibration=calibration,
    )


def release_conjunctions(
    rows: Iterable[str] | KeyCounts,
    family: RowConjunctions,
    guarantee: Guarantee,
    num_records: NumRecords,
    *,
    failure_probability: float = FAILURE_PROBABILITY,
    calibration: Calibration = "tight",
    ledger: Ledger | None = None,
    dataset_id: str = "",
    noise: NoiseSource | None = None,
) -> ReleasedConjunctions:
    """Answers all conjunctions of w literals over rows of d bits, by one run of ``SparseMW``.

    The conjunctions are asked in the order of the family, which is fixed before any row is read.
    Neither time nor memory depends on the 2^d possible rows.

    Privacy: ``guarantee``, for all answers together; see ``SparseMW``. One record is one row,
    which changes the sum of each conjunction by at most one. A unit must have at most
    ``guarantee.max_records_per_unit`` rows.

    Accuracy: with probability at least 1 - ``failure_probability`` every answer is within its
    ``bound``. The bound is below alpha N for N of the order of
    sqrt((k + ln(1/alpha)) ln(1/delta)) ln(K / (alpha beta)) / (epsilon alpha^2) for K conjunctions
    that leave k = d - w bits free, where ln K is ln C(d, k), and w ln 2 more with negations.

    Edge cases: a row that is not a string of d characters 0 and 1 counts as a record for which
    every conjunction is false.

    ``rows``: the records, as strings with one character per bit, or the counts of rows; secret.
    ``ledger``: the ledger that pays after the arguments are checked and before noise is drawn.
    ``dataset_id``: the dataset whose budget pays.
    ``noise``: the source of all noise; by default a new source.
    Other arguments: see ``plan_private_mw``.

    Cost: O(2^k) time and memory per conjunction, to list the rows and to ask.
    Reference: Blum and Roth (2011), Corollary 3.11.

    Example:
        >>> promise = Guarantee(1.0, 0, "replace_one", "record", 1)
        >>> family = RowConjunctions(30, 29, is_monotone=True)
        >>> rows = ["1" * 30] * 200_000
        >>> released = release_conjunctions(rows, family, promise, 200_000)
        >>> text, answer = next(released.items())
        >>> text.count("1"), abs(answer.value - 200_000) <= answer.bound
        (29, True)
    """
    plan = plan_conjunctions(
        family,
        guarantee,
        num_records,
        failure_probability=failure_probability,
        calibration=calibration,
    )
    if (ledger is None) != (not dataset_id):
        raise InputError("dataset_id", dataset_id, "must be given with a ledger, and only then")
    counts = rows if isinstance(rows, KeyCounts) else KeyCounts.of(rows)
    token = None
    if ledger is not None:
        token = ledger.spend(dataset_id, guarantee, plan.loss, plan.mechanism, plan.public)
        ledger.mark_submitted(token)
    run = SparseMW(plan, counts, noise or NoiseSource(), ledger_token=token)
    answers = tuple(run.answer(conjunction_of_text(text)) for text in family)
    return ReleasedConjunctions(family, plan, run.settings, answers)
