"""Answers to all conjunctions of so many literals over rows of bits, in one release."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from beam_dp.errors import InputError
from beam_dp.mechanisms.contract import NumRecords
from beam_dp.mechanisms.online.plan import Calibration, Settings
from beam_dp.mechanisms.online.private_mw import PrivateAnswer
from beam_dp.mechanisms.online.sparse_mw import SparseMW
from beam_dp.mechanisms.online.sparse_mw_plan import SparseMWPlan, plan_sparse_mw
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.queries.row_families import RowConjunctions, conjunction_of_text
from beam_dp.summaries.element_counts import KeyCounts


@dataclasses.dataclass(frozen=True, repr=False)
class ReleasedConjunctions:
    """Answers to a family of conjunctions; public.

    Args:
        family: of which there is an answer to each.
        plan: that was carried out.
        settings: of the run.
        answers: in the order of the family.
    """

    family: RowConjunctions
    plan: SparseMWPlan
    settings: Settings
    answers: tuple[PrivateAnswer, ...]

    def __len__(self) -> int:
        return len(self.answers)

    def items(self) -> Iterator[tuple[str, PrivateAnswer]]:
        """Yields each conjunction, as ``RowConjunctions`` writes it, with its answer."""
        return zip(self.family, self.answers, strict=True)


def plan_conjunctions(
    family: RowConjunctions,
    guarantee: Guarantee,
    num_records: NumRecords,
    *,
    failure_probability: float = 0.05,
    calibration: Calibration = "tight",
) -> SparseMWPlan:
    """Returns the plan of ``release_conjunctions``: of as many questions as there are conjunctions.

    Args: as of ``release_conjunctions``.

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
    failure_probability: float = 0.05,
    calibration: Calibration = "tight",
    ledger: Ledger | None = None,
    dataset_id: str = "",
    noise: NoiseSource | None = None,
) -> ReleasedConjunctions:
    """Answers all conjunctions of w literals over rows of d bits, once and for all.

    Each is asked in turn of one run of ``SparseMW``, in the order of the family, which is fixed
    before any row is read. Neither time nor memory depends on the 2^d rows that there may be.

    Privacy: ``guarantee``, for all answers together: that of ``SparseMW``. One record is one row,
    which changes the sum of each conjunction by at most one. Of a unit there must be at most
    ``guarantee.max_records_per_unit`` rows.

    Accuracy: with probability at least 1 - ``failure_probability`` every answer is within its
    ``bound``. It is below alpha N for N of the order of
    sqrt((k + ln(1/alpha)) ln(1/delta)) ln(K / (alpha beta)) / (epsilon alpha^2) for K conjunctions
    of k = d - w bits left out each, where ln K is ln C(d, k), and w ln 2 more with negations.

    Edge cases: a row that is not a text of d letters 0 and 1 is one of the records, and no
    conjunction holds for it.

    Args:
        rows: of the records, each a text with a letter a bit; or their counts. Secret.
        family: what is asked.
        guarantee: what is promised.
        num_records: the number of records, or ``"noisy"``: see ``plan_sparse_mw``.
        failure_probability: of any bound being wrong.
        calibration: ``tight`` or ``textbook``.
        ledger: that pays, before noise is drawn.
        dataset_id: from whose budget.
        noise: source of all noise; by default a new one.

    Raises:
        InputError: naming the argument that is refused; then nothing was spent.
        LedgerError: if the ledger can't be used.

    Cost: O(2^k) for each conjunction, to list its rows and ask; memory for all of these.
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
    run = SparseMW(plan, counts, noise or NoiseSource(), ledger_token=token)
    answers = tuple(run.answer(conjunction_of_text(text)) for text in family)
    return ReleasedConjunctions(family, plan, run.settings, answers)
