"""Attacks on a synthetic database by its nearest records, to measure what it tells of members.

They need the confidential records, and what they find is as confidential. Nothing is drawn: which
records are attacked, and which of them choose a threshold, follows from their places in the files.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.attributes import Attribute
from beam_dp.domain.ordered import OrderedAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.synthetic_database.shards import random_words
from beam_dp.views.cells import Truth
from beam_dp.views.markup import paragraph, table, text
from beam_dp.views.page import html_page
from beam_dp.views.terminal import counted

Codes = NDArray[np.int64]  # of records, shape (records, attributes)
Verdict = Literal["passes", "does not pass", "no power", "too few records"]

_MOST_ATTACKED = 10_000  # of the members, and of the others
_CACHE_BYTES = 2**27
_FAR = 1000  # the distance of two codes that have no order
_NOT_COVERED = (
    "The guarantee does not cover this result. To draw again until it passes voids the guarantee,"
    " even if every draw is paid."
)
_REASONS: dict[Verdict, str] = {
    "no power": "; the attacks do not even catch a copy of the members, so they say nothing",
    "too few records": "; even attacks without success could not be told from that",
}
_HOW = (
    "An attack guesses an attribute of a record: the most frequent level among the released"
    " records that are nearest in all other attributes. One record of each unit is attacked. The"
    " control is the same attack on others, that no release was made from. Membership is guessed of"
    " records near a released one: half of the records choose how near, the other half is counted."
    " If others differ from members, as those of another year do, this counts as success. Without"
    " others, membership is not guessed, and the control is the level that is most frequent in the"
    " release: what holds for everybody then counts, too. The last column is the same attack on a"
    " copy of the members. Better attacks may succeed."
)


class Attack(NamedTuple):
    """How often an attack succeeds, its control, and an interval of the difference in points."""

    name: str
    share: float  # in percent
    control: float
    low: float
    high: float


class Attacks(NamedTuple):
    """Attacks on a release."""

    of_release: Sequence[Attack]
    of_copy: Sequence[Attack]  # the same attacks on the members themselves
    limit: float  # the points above the control that are allowed
    num_members: int
    num_others: int  # 0 if there were none to compare with

    @property
    def number(self) -> float:
        """The largest upper end: with 97.5 %, no attack succeeds more often above its control."""
        return max(attack.high for attack in self.of_release)

    @property
    def verdict(self) -> Verdict:
        """What the intervals say."""
        if max(attack.low for attack in self.of_release) > self.limit:
            return "does not pass"
        if max(attack.low for attack in self.of_copy) <= self.limit:
            return "no power"
        if self.number <= self.limit:
            return "passes"
        worst = max(self.of_release, key=lambda attack: attack.high)
        half = worst.high - (worst.share - worst.control)
        return "too few records" if half > self.limit else "does not pass"

    @property
    def words(self) -> str:
        """The verdict as a sentence."""
        return (
            f"{self.verdict}: the success of attacks above the control reaches up to"
            f" {self.number:.1f} points (95 %), and {self.limit:g} are allowed"
            + _REASONS.get(self.verdict, "")
            + ("" if self.num_others else "; without --control, membership was not tried")
        )


def attack(
    release: SyntheticDatabase, members: Truth, others: Truth | None, limit: float
) -> Attacks:
    """Attacks a release; ``limit``: the points above the control that are allowed.

    Takes time in proportion to the attacked records times the different released records. Without
    ``others``, membership is not guessed.
    """
    targets, copied = _chosen("against", members)
    strangers = None if others is None else _chosen("control", others)[0]
    released = np.stack(release.codes, axis=1).astype(np.int64), release.counts
    of_release, of_copy = (
        _attacks(release.domain, records, counts, targets, strangers)
        for records, counts in (released, np.unique(copied, axis=0, return_counts=True))
    )
    num_others = 0 if strangers is None else len(strangers)
    return Attacks(of_release, of_copy, limit, len(targets), num_others)


def _chosen(flag: str, truth: Truth) -> tuple[Codes, Codes]:
    """Returns the attacked records, in an order that follows from their places, and all records."""
    records = np.stack(truth.codes, axis=1).astype(np.int64)
    if len(records) < 2:
        raise InputError(flag, len(records), "must be at least 2 records in the release's domain")
    order = np.argsort(random_words("attacked records", len(records), "<u8"))
    return records[order[:_MOST_ATTACKED]], records


def _attacks(
    domain: Domain, records: Codes, counts: NDArray[Any], members: Codes, others: Codes | None
) -> list[Attack]:
    """Returns the attacks by released records; ``counts``: the number of rows of each."""
    distances, guesses = _nearest(domain, records, counts, members)
    right, attacks = guesses == members, []
    if others is None:
        control = members == [np.bincount(column, counts).argmax() for column in records.T]
    else:
        far, guesses = _nearest(domain, records, counts, others)
        control = guesses == others
        # The first half chooses the distance up to which a record passes as a member.
        tried = np.unique(distances[::2])
        members_near, others_near = (
            np.searchsorted(np.sort(part), tried, side="right") / len(part)
            for part in (distances[::2], far[::2])
        )
        near = tried[np.argmax(members_near - others_near)]
        attacks.append(_compared("membership", distances[1::2] <= near, far[1::2] <= near))
    for axis, attribute in enumerate(domain):
        name = f"inference of {attribute.name}"
        attacks.append(_compared(name, right[:, axis], control[:, axis], others is None))
    return attacks


def _nearest(
    domain: Domain, records: Codes, counts: NDArray[Any], targets: Codes
) -> tuple[Codes, Codes]:
    """Returns the distance of each target to the nearest record, and guesses of its attributes."""
    different, places = np.unique(targets, axis=0, return_inverse=True)
    columns = [np.ascontiguousarray(column) for column in records.T]
    distances, guesses = np.zeros(len(different), np.int64), np.zeros_like(different)
    most_kept = len(columns) + _CACHE_BYTES // (4 * max(domain.shape))
    to_codes = functools.lru_cache(most_kept)(
        lambda axis, code: _distances(domain.attributes[axis], code)
    )
    for place, target in enumerate(different.tolist()):
        total = np.zeros(len(records), np.int32)
        for axis, code in enumerate(target):
            total += to_codes(axis, code).take(columns[axis])
        distances[place] = total.min()
        # Others are not the nearest in all attributes but one.
        close = np.flatnonzero(total <= distances[place] + _FAR)
        for axis, code in enumerate(target):
            codes = columns[axis][close]
            rest = total[close] - to_codes(axis, code).take(codes)
            nearest = rest == rest.min()
            votes = np.bincount(codes[nearest], counts[close][nearest])
            guesses[place, axis] = votes.argmax()
    return distances[places.reshape(-1)], guesses[places.reshape(-1)]


def _distances(attribute: Attribute, code: int) -> NDArray[np.int32]:
    """Returns the distance of a code to each code of an attribute, 0 to ``_FAR``."""
    distances, levels = np.full(attribute.size, _FAR, np.int32), attribute.num_levels
    if isinstance(attribute, OrderedAttribute) and code < levels:
        distances[:levels] = np.ceil(np.abs(np.arange(levels) - code) * _FAR / max(levels - 1, 1))
    distances[code] = 0
    return distances


def _compared(
    name: str, hits: NDArray[np.bool_], control: NDArray[np.bool_], is_paired: bool = False
) -> Attack:
    """Returns an attack with a 95 % interval: Newcombe (1998), method 10.

    If both are of the same records, widths add up: this holds for any dependence.
    """
    share, low, high = _wilson(hits)
    other, other_low, other_high = _wilson(control)
    joined = (lambda first, second: first + second) if is_paired else math.hypot
    below, above = joined(share - low, other_high - other), joined(high - share, other - other_low)
    return Attack(name, share, other, share - other - below, share - other + above)


def _wilson(hits: NDArray[np.bool_]) -> tuple[float, float, float]:
    """Returns a share and its interval, in percent."""
    from scipy.stats import binomtest

    interval = binomtest(int(hits.sum()), len(hits)).proportion_ci(method="wilson")
    return 100 * float(hits.mean()), 100 * interval.low, 100 * interval.high


def attack_page(draw_id: str, attacks: Attacks) -> str:
    """Returns the private page about attacks on a release."""
    head = paragraph(f"PRIVATE: as confidential as the records. {_NOT_COVERED}", "private")
    head += f"<h1>Attacks on release {text(draw_id[:8])}</h1>"
    command = "<code>beam-dp attack</code> from the release and its records"
    return html_page("Attacks", head, {"Attacks": attacks_markup(attacks)}, command, True)


def attacks_markup(attacks: Attacks) -> str:
    """Returns the verdict, a table of the attacks, and what was tried."""
    pairs = zip(attacks.of_release, attacks.of_copy, strict=True)
    rows = [
        (
            attack.name,
            f"{attack.share:.1f} %",
            f"{attack.control:.1f} %",
            f"{attack.low:+.1f} to {attack.high:+.1f}",
            f"{of_copy.low:+.1f} to {of_copy.high:+.1f}",
        )
        for attack, of_copy in sorted(pairs, key=lambda pair: -pair[0].high)
    ]
    numbers = counted(attacks.num_members, "member"), counted(attacks.num_others, "other")
    header = "attack", *numbers, "points above (95 %)", "of a copy"
    return (
        paragraph(text(f"The release: {attacks.words}.", 600), "verdict")
        + paragraph(_NOT_COVERED)
        + table("Success of attacks", header, rows, range(1, len(header)))
        + paragraph(_HOW)
    )
