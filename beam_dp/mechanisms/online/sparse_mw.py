"""Online multiplicative weights for sparse queries over any universe."""

from __future__ import annotations

from typing import Any

from beam_dp.errors import InputError
from beam_dp.mechanisms.online.private_mw import OnlineMW, SavedRun
from beam_dp.mechanisms.online.sparse_mw_plan import SparseMWPlan
from beam_dp.models.weights import SparseWeights
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.ledger.entries import Token
from beam_dp.queries.sparse import Element, SparseQuery
from beam_dp.summaries.element_counts import KeyCounts


class SparseMW(OnlineMW[SparseQuery]):
    """Answers sparse queries, chosen adaptively, over a universe of any size, infinite ones too.

    Privacy: ``plan.guarantee``, for all answers together, any number of them, whatever alpha, m,
    the number of slots and the number of records that is given. It is that of ``NumericSparse``,
    as for ``PrivateMW``: one record has one key, so that it changes a query's sum by at most one,
    under either relation. A noisy number of records costs a twentieth of epsilon. Slots are
    given to elements of queries that were updated, never to keys of the data; everything else is
    computed from queries and released values.

    Accuracy: with probability at least 1 - beta, every answer to the first K different queries is
    within its ``bound``, as of ``PrivateMW`` with ln s in place of ln|X|. s depends on m and alpha
    alone, see ``num_slots``: the data whose keys no query has asked about are taken together.

    Edge cases: no element: the answer is 0 or so. No data: same path. Too many questions: as
    private, no bound. No updates left: answers come from the hypothesis and the data are not
    read again. Slots never run out.

    Args:
        plan: see ``plan_sparse_mw``. What it costs, ``plan.loss``, is spent here, at once.
        records: the exact counts by key; secret.
        noise: source of all noise.
        ledger_token: of the ledger that paid for the run, if one did. It pays for one run: a second
            one that is made with it, in the same program or another, is not refused here.
        saved: what ``hand_over`` of an earlier run of the same plan returned: nothing is spent. One
            object goes on from it.

    Raises:
        InputError: if the token paid for something else, or what was saved is of other settings.
        HaltedError: if another object went on from what was saved.

    Cost: O(m) a query and an update, whatever the universe and the data; memory O(m) for each
    update and each query asked.
    Reference: Blum and Roth (2011), Algorithm 1, corrected; Dwork and Roth (2014), Algorithm 6;
    Lyu, Su and Li (2017) for the noise.

    Example:
        >>> from beam_dp.mechanisms.online.sparse_mw_plan import plan_sparse_mw
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
        saved: SavedRun[SparseQuery] | None = None,
    ) -> None:
        super().__init__(plan, records.num_records, noise, ledger_token, saved)
        self._hypothesis = SparseWeights(plan.num_slots(self.settings.max_error))
        self._counts = records.counts
        if saved is not None:
            self._steps = dict(saved.steps)
            for query, step in saved.steps.items():
                self._hypothesis.update(query, step)

    @property
    def weights(self) -> dict[Element, float]:
        """The hypothesis: weights of all elements of updates; a copy; public."""
        return self._hypothesis.weights

    @property
    def common_weight(self) -> float:
        """The hypothesis: the weight of every other element; public."""
        return self._hypothesis.common_weight

    @property
    def num_slots(self) -> int:
        """How many weights the hypothesis has, free ones included; public."""
        return self._hypothesis.num_slots

    def _exact(self, query: SparseQuery) -> int:
        return query.count(self._counts)

    def _check(self, query: Any) -> None:
        if not isinstance(query, SparseQuery):
            raise InputError("query", query, "must be a SparseQuery")
        if query.sparsity > self.plan.max_sparsity:
            condition = f"must have at most max_sparsity = {self.plan.max_sparsity:,}"
            raise InputError("query", f"{query.sparsity:,} elements", condition)
