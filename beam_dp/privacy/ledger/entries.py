"""Records of the ledger: declared budgets, releases, and refusals."""

from __future__ import annotations

import collections
import dataclasses
import getpass
import itertools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Self
from weakref import WeakValueDictionary

from beam_dp.checks import check_choice, checked_number
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import MAX_EPSILON, Guarantee, Neighboring
from beam_dp.privacy.ledger import filters
from beam_dp.privacy.loss import Kind, Loss


class LedgerError(InputError):
    """The ledger refused an entry or can't be used: the release must not happen.

    Nothing was spent, unless the connection broke while the server confirmed the entry.
    """


def check_text(name: str, value: object, most: int = 200) -> None:
    """Refuses a value, such as a dataset id, that is not a printable string."""
    if not (isinstance(value, str) and 1 <= len(value) <= most and value.isprintable()):
        raise InputError(name, value, f"must be 1 to {most:,} printable characters")


# The largest number of characters per field of an origin.
LONGEST = {"who": 200, "purpose": 500, "output": 4096}


@dataclasses.dataclass(frozen=True)
class Origin:
    """The payer, purpose and output of a release, for people who read the ledger.

    The ledger stores the origin next to the parameters; releases do not depend on it. Everyone with
    access to the ledger sees the origin, so it must not reveal anything about records.
    """

    who: str = dataclasses.field(default_factory=lambda: system_user())
    purpose: str | None = None  # the reason for the release, up to 500 characters
    output: str | None = None  # the directory or URL of the release, if known

    def __post_init__(self) -> None:
        for name, limit in LONGEST.items():
            if (text := getattr(self, name)) is not None or name == "who":
                check_text(name, text, limit)

    def to_json(self) -> dict[str, str | None]:
        """Returns the origin as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Self | None:
        """Returns the origin that ``to_json`` wrote; None for any other value found in an entry."""
        if not isinstance(value, dict) or value.keys() != LONGEST.keys():
            return None
        try:
            return cls(**value)
        except InputError:
            return None


def place_text(output: str) -> str:
    """Returns the location of an output for an entry: a URL, or the absolute path of a folder."""
    place = output if "://" in output else os.path.abspath(output)
    # Entries are printed, and a folder's name may contain any characters.
    shown = "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in place
    )
    return shown[: LONGEST["output"]]


def system_user() -> str:
    """Returns the user name of the operating system; the user's number if it has no name."""
    try:
        import pwd

        name = pwd.getpwuid(os.getuid()).pw_name
    except ImportError:  # not on Windows
        name = getpass.getuser()
    except KeyError:  # in a container
        name = f"uid {os.getuid()}"
    return name if name.isprintable() and name else "unknown"


class OverBudgetError(LedgerError):
    """A release does not fit the remaining budget; nothing was spent."""


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A declared budget."""

    dataset_id: str  # a name of 1 to 200 printable characters
    epsilon: float  # the total epsilon, from 1e-6 to 1e6
    delta: float  # the total delta; 0 allows only releases with pure differential privacy
    privacy_unit: str
    neighboring: Neighboring
    composition: filters.Composition = filters.DEFAULT_COMPOSITION

    def __post_init__(self) -> None:
        check_text("dataset_id", self.dataset_id)
        # A budget has the rules of a guarantee, except that ``declare`` checks the size of delta.
        checked = Guarantee(
            self.epsilon, self.delta, self.neighboring, self.privacy_unit, 1, allow_large_delta=True
        )
        object.__setattr__(self, "epsilon", checked.epsilon)
        object.__setattr__(self, "delta", checked.delta)
        object.__setattr__(self, "neighboring", checked.neighboring)
        if not self.privacy_unit.isprintable():
            condition = "must be printable characters in a ledger"
            raise InputError("privacy_unit", self.privacy_unit, condition)
        ends = filters.MIN_EPSILON, MAX_EPSILON
        checked_number("epsilon", self.epsilon, least=ends[0], most=ends[1], note=" in a ledger")
        check_choice("composition", self.composition, filters.COMPOSITIONS)


@dataclasses.dataclass(frozen=True)
class Token:
    """Proof that one release was paid for. The loss is rounded up to doubles, as in ledgers."""

    dataset_id: str
    number: int
    mechanism: str
    guarantee: Guarantee
    loss: Loss

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", self.loss.in_doubles())

    @property
    def release_id(self) -> str:
        """The release's name in the ledger."""
        return f"{self.dataset_id}/{self.number}"

    def check(self, mechanism: str, guarantee: Guarantee, loss: Loss) -> None:
        """Refuses a release that this token did not pay for."""
        if (self.mechanism, self.guarantee, self.loss) != (mechanism, guarantee, loss.in_doubles()):
            condition = f"must have paid for {mechanism!r} with the same guarantee and loss"
            raise InputError("ledger_token", self.release_id, condition)


_NUMBERS = itertools.count()
_UNPAID: WeakValueDictionary[tuple[int, int], LaterToken] = WeakValueDictionary()


class LaterToken(Token):
    """The token of a job that is paid for only after its pipeline is built.

    A job that planning accepted can still be refused while its pipeline is built; a refused job
    must cost nothing. Beam pickles a step when the step is added to a pipeline, and again when the
    pipeline runs. A pickle made before ``pay`` refers to this object in this process; a pickle made
    later contains the token of the entry. A job that runs without payment fails, because its card
    needs the number of the entry.
    """

    def __init__(self, dataset_id: str, mechanism: str, guarantee: Guarantee, loss: Loss) -> None:
        fields = {"dataset_id": dataset_id, "mechanism": mechanism, "guarantee": guarantee}
        self.__dict__.update(fields, loss=loss.in_doubles())
        self._key = os.getpid(), next(_NUMBERS)
        self._token: Token | None = None
        _UNPAID[self._key] = self

    def pay(self, token: Token) -> None:
        """Gives this job the token that paid for it."""
        token.check(self.mechanism, self.guarantee, self.loss)
        self._token = token

    @property
    def number(self) -> int:
        """The number of the entry; raises RuntimeError before ``pay``."""
        if self._token is None:
            raise RuntimeError("the job was not paid for")
        return self._token.number

    def __repr__(self) -> str:
        return f"LaterToken({self._token!r})"

    def __reduce__(self) -> tuple[Callable[..., Token], tuple[Any, ...]]:
        return _unpickled, (self._token or self._key,)


def _unpickled(token: Token | tuple[int, int]) -> Token:
    return token if isinstance(token, Token) else _UNPAID[token]


@dataclasses.dataclass(frozen=True)
class Entry(Token):
    """One recorded release; a new field also changes ``storage`` and ``Ledger._spend``."""

    parameters: Mapping[str, Any]
    spent_at: str  # the time of payment, ISO 8601, UTC
    released_at: str | None  # the time of completion, ISO 8601, UTC; None if not complete
    draw_id: str | None  # of the release on disk, if it is known
    origin: Origin | None = None  # None in entries from earlier versions
    submitted_at: str | None = None  # like ``spent_at``; None if noise was not drawn, or not marked

    @property
    def state(self) -> Literal["spent", "submitted", "released"]:
        """``released`` if the release is complete; ``submitted`` if noise may have been drawn."""
        if self.released_at is None:
            return "spent" if self.submitted_at is None else "submitted"
        return "released"

    def to_json(self) -> dict[str, Any]:
        """Returns the entry as JSON values."""
        return {
            "release_id": self.release_id,
            "state": self.state,
            **dataclasses.asdict(self),
            "guarantee": self.guarantee.to_json(),
            "loss": self.loss.to_json(),
        }


# What ``spent_by`` can group entries by, in addition to the dataset.
GROUPS = ("year", "date", "release", "who", "purpose")


def spent_by(entries: Iterable[Entry], names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Returns rows: dataset, ``names`` of ``GROUPS``, releases, and sums of epsilon and delta."""
    groups = collections.defaultdict[tuple[str, ...], list[Guarantee]](list)
    for entry in entries:
        fields = entry.origin.to_json() if entry.origin else {}
        date, release = entry.spent_at[:10], entry.release_id
        fields |= {"year": date[:4], "date": date, "release": release}
        key = entry.dataset_id, *(fields.get(name) or "" for name in names)
        groups[key].append(entry.guarantee)
    return [
        (
            *key,
            len(paid),
            math.fsum(each.epsilon for each in paid),
            sum(each.delta for each in paid),
        )
        for key, paid in sorted(groups.items())
    ]


def account_of(dataset: Dataset, paid: Sequence[Token]) -> filters.Account:
    """Returns the account of a declared budget, with the losses of the paid releases in order."""
    losses = tuple(token.loss for token in paid)
    return filters.Account(dataset.epsilon, dataset.delta, dataset.composition, losses)


def over_budget(
    account: filters.Account,
    paid: Sequence[Token],
    dataset_id: str,
    guarantee: Guarantee,
    loss: Loss,
) -> OverBudgetError:
    """Returns an error with the largest epsilon that fits, the request, and the top spenders."""
    epsilon, delta, words = _admitted(account, guarantee.delta, loss)
    name, value = "epsilon", guarantee.epsilon
    if not account.admits_slack(loss) or (epsilon > 0 and delta == 0 and loss.kind != "pure"):
        name, value = "delta", guarantee.delta
    admitted = f"which leaves at most epsilon {epsilon:g}, delta {delta:g}{words}"
    said = [f"must fit {dataset_id!r}, {admitted if epsilon > 0 else 'which leaves nothing'}"]
    if loss.slack and not account.slack_limit(loss):
        said.append(
            "its thresholds need a part of delta, which a budget declared with --composition"
            " with_slack keeps for them"
        )
    which = account.best(loss)
    if which is not None and account.admits_slack(loss):
        requested, left = float(filters.cost(which, loss) or 0), float(account.left(which, loss))
        if left < 1e-12 * requested:
            left = 0.0  # the remaining budget is only a rounding error
        said.append(f"requested {filters.UNITS[which]} {requested:.6g}, remaining {left:.6g}")
    spenders = sorted(paid, key=lambda token: token.guarantee.epsilon, reverse=True)[:3]
    if spenders:
        by = ", ".join(
            f"{token.release_id} ({token.mechanism}, epsilon {token.guarantee.epsilon:g})"
            for token in spenders
        )
        said.append(f"largest releases: {by}")
    return OverBudgetError(name, value, "; ".join(said))


def _admitted(account: filters.Account, delta: float, loss: Loss) -> tuple[float, float, str]:
    """Returns epsilon and delta of a release that fits, and a phrase if its kind is different."""
    slack = account.largest_slack(loss) if loss.slack else 0.0
    if slack > 0 and (epsilon := account.largest_epsilon("pure", 0.0)) > 0:
        return epsilon, slack, " for a release that is private except with some probability"
    others: tuple[tuple[Kind, str], ...] = (
        ("pure", ", as with Laplace noise"),
        ("gaussian", ", with Gaussian noise"),
    )
    for kind, words in ((loss.kind, ""), *others):
        allowed = 0.0 if kind == "pure" else delta
        if (epsilon := account.largest_epsilon(kind, allowed)) > 0:
            return epsilon, allowed, words
    return 0.0, 0.0, ""
