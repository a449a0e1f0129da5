"""The base classes of plans, and the check that a plan's noise keeps its guarantee."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from beam_dp.checks import check_is
from beam_dp.domain.attributes import PaidRelease
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms.checks import NumRecords
from beam_dp.privacy.guarantee import Guarantee, warn_of_epsilon
from beam_dp.privacy.ledger.entries import Token
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.rounding import root_up
from beam_dp.privacy.steps import Step, loss_json, more_than, told_steps, total
from beam_dp.privacy.unit_costs import UnitCosts
from beam_dp.releases.earlier_stage import PaidTogether

if TYPE_CHECKING:
    from beam_dp.mechanisms.left_out import LeftOutPlan
    from beam_dp.releases.release import Release


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Plan(PaidTogether, ABC):
    """The plan of a mechanism, made from public numbers before any record is read.

    Noise is drawn from the typed fields of the subclass. ``public`` derives the JSON of cards and
    ledgers from these fields; the JSON is never read back, so changing the JSON changes no release.
    """

    mechanism: str  # the name on cards and in ledgers
    guarantee: Guarantee  # of the mechanism, without counts of records left out
    loss: Loss  # what a ledger is charged, including left-out counts and the domain's release
    left_out: LeftOutPlan | None = None  # for counting records outside the domain
    records_per_unit_from: PaidRelease | None = None  # the choice, if it was paid for apart
    ledger_token: Token | None = None  # of the ledger entry that paid, if any

    @property
    def promised(self) -> Guarantee:
        """The guarantee of the release, including left-out counts and the domain's release."""
        wholes: list[Guarantee] = [part.whole for part in self.earlier.values()]
        if wholes:
            return wholes[-1]
        return self.guarantee if self.left_out is None else self.left_out.guarantee

    @property
    def public(self) -> dict[str, Any]:
        """The parameters that the card states, as JSON values; a copy."""
        return {**self._stated(), **self.payer()}

    @property
    def disk_bytes(self) -> float:
        """About the most that the files of the release take, as far as it is public and large."""
        return 0.0

    def entry(self) -> dict[str, Any]:
        """Returns the parameters that the ledger's entry states, as JSON values."""
        return {**self.public, **self._counted_left_out(), **self.earlier_json()}

    def identity(self) -> dict[str, Any]:
        """Returns the part of the card that identifies a job and doesn't depend on the records.

        Error bounds are left out: the last digits of logarithms differ between machines.
        """
        identity = {"mechanism": self.mechanism, "guarantee": self.promised.to_json()}
        identity |= self.earlier_json()
        if self.left_out is None:
            return identity
        left_out = self.left_out.to_json()
        return {**identity, "left_out": {name: left_out[name] for name in ("noise", "budget")}}

    def card(self) -> dict[str, Any]:
        """Returns the part of the card that is known before any record is read."""
        return {**self.identity(), **self._counted_left_out()}

    def _counted_left_out(self) -> dict[str, Any]:
        return {} if self.left_out is None else {"left_out": self.left_out.to_json()}

    def _repr_html_(self) -> str:
        from beam_dp.views.terminal import plan_html

        return plan_html(self.mechanism, self.promised, self.public)

    def payer(self) -> dict[str, Any]:
        """Returns the card's fields for the ledger entry that paid, and for a choice paid apart."""
        paid = {} if self.ledger_token is None else {"ledger_release": self.ledger_token.release_id}
        chosen = self.records_per_unit_from
        return paid if chosen is None else {**paid, "records_per_unit_from": chosen.to_json()}

    def paid_by(self, token: Token | None) -> Self:
        """Returns this plan with the token, if any, of the ledger entry that paid for the plan.

        Every run of a plan begins with this call, which warns about a large epsilon. It refuses a
        plan that breaks its guarantee (``check_promise``) and a token that paid for another
        mechanism, guarantee or loss.
        """
        check_promise(self, self.guarantee)
        warn_of_epsilon(self.promised.epsilon)
        if token is None:
            return self
        check_is("ledger_token", token, Token)
        token.check(self.mechanism, self.promised, self.loss)
        return dataclasses.replace(self, ledger_token=token)

    @property
    @abstractmethod
    def steps(self) -> Sequence[Step]:
        """The noisy draws, except the ``left_out`` counts, each with the loss of its noise alone.

        Every draw of a plan must be listed: ``check_promise`` adds up these steps before a budget
        is spent. If a draw depends on noise, for example on a selection, its worst case is listed.
        """

    @property
    def unit_costs(self) -> UnitCosts | None:
        """A limit on a unit's records besides the limit on their number; None without such a limit.

        Every step that counts records must apply this limit: the guarantee relies on it.
        """
        return None

    @property
    @abstractmethod
    def memory_bytes(self) -> float:
        """The worker's memory for a draw, to an order of magnitude, without the exact summary."""

    @property
    def time_depends_on_data(self) -> bool:
        """Whether the time of the draw must be kept secret."""
        return False

    @abstractmethod
    def _stated(self) -> dict[str, Any]:
        """Returns the plan's parameters for the card, as JSON values."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class EarlierPlan(Plan):
    """The plan of a release that the next one is planned with; a ledger pays for all at once.

    ``whole``: the guarantee of this release and those that follow.
    ``paid``: the guarantee and the loss that a ledger is charged for all of them, once known.
    """

    what: ClassVar[str]  # the subject of the release
    done: ClassVar[str]  # what its run did
    kind: ClassVar[type[Release]]

    whole: Guarantee
    paid: tuple[Guarantee, Loss] | None = None

    def paid_by(self, token: Token | None) -> Self:
        """See ``Plan``; the token must have paid for all releases together."""
        check_promise(self, self.guarantee)
        warn_of_epsilon(self.whole.epsilon)
        if token is None:
            return self
        check_is("ledger_token", token, Token)
        assert self.paid is not None
        token.check(token.mechanism, *self.paid)
        return dataclasses.replace(self, ledger_token=token)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AnswersPlan(Plan):
    """The plan of a mechanism that releases answers to queries instead of data."""

    num_records: NumRecords  # the public number of records, or ``"noisy"``

    @property
    @abstractmethod
    def universe(self) -> Domain | None:
        """The domain of the queries; None for queries about keys."""

    @property
    @abstractmethod
    def is_vacuous(self) -> bool:
        """Whether the error bound is known in advance to be too large to be useful."""

    def identity(self) -> dict[str, Any]:
        """Returns the part of the card that identifies a job and doesn't depend on the records."""
        fixed = ("mechanism", "guarantee", "domain", "plan")
        return {name: value for name, value in self.card().items() if name in fixed}

    def card(self, num_records: int | None = None) -> dict[str, Any]:
        """Returns the plan's part of a card; ``num_records`` is the drawn number, if any."""
        public = None if self.num_records == "noisy" else self.num_records
        number = public if num_records is None else num_records
        domain = {} if self.universe is None else {"domain": self.universe.to_json()}
        return {
            "mechanism": self.mechanism,
            "guarantee": self.guarantee.to_json(),
            "num_records": self._stated_number(number),
            **domain,
            "plan": self._stated(),
            **self._settled(number),
            **self.payer(),
        }

    @abstractmethod
    def _stated_number(self, num_records: int | None) -> dict[str, int | None] | None:
        """Returns the number of records as the card states it."""

    def _settled(self, num_records: int | None) -> dict[str, Any]:
        """Returns the fields of the card that depend on the number of records."""
        return {}


def check_promise(plan: Plan, guarantee: Guarantee) -> None:
    """Refuses a plan whose ``steps`` break ``guarantee`` or cost more than ``plan.loss``."""
    if plan.guarantee != guarantee:
        condition = "must be the requested guarantee"
        raise InputError("guarantee", plan.guarantee.to_json(), condition)
    # The steps are computed from what the card states, by the functions that verify cards, so this
    # check does not depend on the arithmetic that planned the noise.
    together, epsilon = total(plan.steps, guarantee)
    if not epsilon <= guarantee.epsilon:
        condition = (
            f"must keep epsilon {guarantee.epsilon:.6g} at delta {guarantee.delta:g}, but the noise"
            f" of its plan keeps only epsilon {more_than(epsilon, guarantee.epsilon)}"
            f" ({told_steps(plan.steps)})"
        )
        raise InputError("mechanism", plan.mechanism, condition)
    if plan.left_out is None and not plan.loss.covers(together.loss):
        proved = loss_json(together.loss)
        if "mu_squared" in proved:
            proved["mu"] = root_up(proved.pop("mu_squared"))
        condition = f"must be at least the loss of the plan of {plan.mechanism}, {proved}"
        raise InputError("loss", plan.loss.to_json(), condition)
