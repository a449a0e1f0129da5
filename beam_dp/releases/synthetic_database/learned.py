"""What models and an attack learn from released records, compared with exact ones. Private."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_dp.privacy.guarantee import RECORD
from beam_dp.releases.synthetic_database.shards import random_words
from beam_dp.reports.markup import paragraph, part, table, text

if TYPE_CHECKING:
    from beam_dp.releases.synthetic_database.release import SyntheticDatabase
    from beam_dp.reports.cells import Counts

Codes = NDArray[Any]  # shape (num_attributes, num_records)
Hits = NDArray[np.bool_]  # which targets were guessed right

_MAX_ATTRIBUTES, _MAX_LEVELS = 8, 20
_MIN_RECORDS = 400
_LEARNED, _LOOKED_UP, _TARGETS = 10_000, 100_000, 500  # the most records
_TREES, _LEAF = 50, 3
# Chance seldom reaches it in any of the attributes.
_CLEAR = 3.0  # standard errors
# An attack that succeeds less often on a copy would not show a leak either.
_MIN_SUCCESS = 0.1
_MISSING = (
    "Not computed, because scikit-learn is not installed: pip install 'beam_dp[report]'. All else"
    " on this page is complete."
)
_TOO_FEW = (
    f"Not computed: it needs two attributes, one of them with 2 to {_MAX_LEVELS} levels, and"
    f" {_MIN_RECORDS} records, both exact and released."
)
_MODELS = (
    "A random forest of scikit-learn learns to predict an attribute from all others: once from"
    " {learned:,} released records, and once from {learned:,} exact records. Both forests are"
    " tested on {tested:,} exact records of other {whom}. The release was made from all of them, so"
    " only noise keeps it from knowing the tested ones. The numbers are areas under the ROC curve,"
    " averaged over the levels by their numbers of records: 50 % is guessing, 100 % is perfect."
    " Shown are the first {asked} attributes with 2 to {levels} levels."
)
_ATTACK = (
    "The attacker knows all attributes of a record except one, looks up the most similar record in"
    " a table of {looked_up:,} records, and guesses that both have the same level. Below are the"
    " shares of right guesses about {targets:,} exact records. The table has exact records of other"
    " {whom}, or released records, or it is a copy of {share:.0f} % of all exact records. The first"
    " shows what can be guessed about anyone, the last what the attack finds where nothing is"
    " protected."
)
_LIMITS = (
    "The attack can show that something is wrong: find out why, if released records tell clearly"
    " more than those of other {whom}. It can't show that all is well, because another attack may"
    " find more. No such number proves privacy; the guarantee limits every attack."
)


class _Attack(NamedTuple):
    """The targets whose level of one attribute was guessed right, in each way."""

    name: str
    most_frequent: Hits
    others: Hits
    released: Hits
    copy: Hits

    @property
    def can_succeed(self) -> bool:
        """Whether a copy tells clearly, and much, more than the records of others."""
        gain = float(self.copy.mean() - self.others.mean())
        return gain >= _MIN_SUCCESS and _is_clearly_more(self.copy, self.others)


def learned_section(release: SyntheticDatabase, truth: Counts) -> str:
    """Returns the private section about models and an attack; models need scikit-learn."""
    domain, whom = release.domain, "units"
    if release.guarantee.privacy_unit == RECORD:
        whom = "records"
    axes = [axis for axis, size in enumerate(domain.shape) if 2 <= size <= _MAX_LEVELS]
    axes = axes[:_MAX_ATTRIBUTES] if domain.num_attributes > 1 else []
    if not axes or min(truth.num_records, int(release.counts.sum())) < _MIN_RECORDS:
        return paragraph(text(_TOO_FEW, 400))
    models = paragraph(text(_MISSING))
    if importlib.util.find_spec("sklearn") is not None:
        models = _models(release, truth, axes, whom)
    return part("Models", models) + part("An attack", _attack(release, truth, axes, whom))


def _models(release: SyntheticDatabase, truth: Counts, axes: Sequence[int], whom: str) -> str:
    """Returns how well forests predict that learned from released and from exact records."""
    tested, others = truth.apart(0.5)
    number = min(len(others), int(release.counts.sum()), _LEARNED)
    learned = _released(release, number), _chosen(truth.codes, others[:number])
    asked = _chosen(truth.codes, tested[:_LEARNED])
    rows = [
        (release.domain.names[axis], *(_percent(_area(known, asked, axis)) for known in learned))
        for axis in axes
    ]
    sizes = {"learned": number, "tested": asked.shape[1], "asked": len(axes)}
    words = _MODELS.format(whom=whom, levels=_MAX_LEVELS, **sizes)
    header = "attribute", "learned from released records", "from exact records"
    return paragraph(text(words, 1_000)) + table("Area under the ROC curve", header, rows, (1, 2))


def _attack(release: SyntheticDatabase, truth: Counts, axes: Sequence[int], whom: str) -> str:
    """Returns what an attacker finds who looks up similar records in three tables."""
    known, others = truth.apart(min(0.1, _TARGETS / truth.num_records))
    targets, (every, _) = _chosen(truth.codes, known[:_TARGETS]), truth.apart(1.0)
    number = min(len(others), int(release.counts.sum()), _LOOKED_UP)
    others, copy = (_chosen(truth.codes, each[:number]) for each in (others, every))
    tables = others, _released(release, number), copy
    guessed = [_looked_up(each, targets, axes) for each in tables]
    attacks = []
    for place, axis in enumerate(axes):
        frequent = np.bincount(others[axis]).argmax() == targets[axis]
        hits = (each[place] for each in guessed)
        attacks.append(_Attack(release.domain.names[axis], frequent, *hits))
    sizes = {"looked_up": number, "targets": targets.shape[1], "share": 100 * number / len(every)}
    words = [_ATTACK.format(whom=whom, **sizes), *_verdicts(attacks, whom)]
    header = "attribute", "most frequent level", f"other {whom}", "released records", "a copy"
    rows = [(name, *(_percent(float(each.mean())) for each in hits)) for name, *hits in attacks]
    first, *found = (paragraph(text(each, 1_000)) for each in (*words, _LIMITS.format(whom=whom)))
    return first + table("Levels guessed right", header, rows, range(1, 5)) + "".join(found)


def _verdicts(attacks: Sequence[_Attack], whom: str) -> Iterator[str]:
    """Yields sentences: where the attack means something, and what it finds there."""
    means = [each for each in attacks if each.can_succeed]
    silent = [each.name for each in attacks if not each.can_succeed]
    found = [each.name for each in means if _is_clearly_more(each.released, each.others)]
    if silent:
        yield (
            f"About {', '.join(silent)}, a copy tells hardly more than other {whom}, so the attack"
            " shows nothing there."
        )
    if means:
        yield (
            f"Released records tell clearly more than other {whom}, by over {_CLEAR:g} standard"
            f" errors, about {', '.join(found) or 'none'} of the {len(means)} attributes about"
            " which a copy does."
        )


def _released(release: SyntheticDatabase, number: int) -> Codes:
    """Returns evenly chosen released records, in random order."""
    ends = np.cumsum(release.counts)
    places = np.arange(number) * int(ends[-1]) // number
    chosen = np.searchsorted(ends, places, side="right")
    order = np.argsort(random_words("order of released records", number, "<u8"))
    return _chosen(release.codes, chosen[order])


def _chosen(columns: Sequence[NDArray[Any]], places: NDArray[np.intp]) -> Codes:
    return np.stack([column[places] for column in columns])


def _area(known: Codes, tested: Codes, axis: int) -> float:
    """Returns the mean area under the ROC curve of a forest that learned from known records."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.metrics import roc_auc_score

    forest = RandomForestClassifier(_TREES, min_samples_leaf=_LEAF, random_state=0)
    forest.fit(np.delete(known, axis, axis=0).T, known[axis])
    chances = forest.predict_proba(np.delete(tested, axis, axis=0).T)
    column = {level: place for place, level in enumerate(forest.classes_.tolist())}
    levels, counts = np.unique(tested[axis], return_counts=True)
    if len(levels) == 1:
        return 0.5
    # A level that no known record has is not told from others.
    areas = [
        roc_auc_score(tested[axis] == level, chances[:, column[level]]) if level in column else 0.5
        for level in levels.tolist()
    ]
    return float(np.average(areas, weights=counts))


def _looked_up(known: Codes, targets: Codes, axes: Sequence[int]) -> list[Hits]:
    """Returns for each axis which targets have the level of the record that is most like them."""
    hits = np.zeros((len(axes), targets.shape[1]), np.bool_)
    for number, target in enumerate(targets.T):
        equal = known == target[:, np.newaxis]
        total = equal.sum(axis=0, dtype=np.int16)
        for place, axis in enumerate(axes):
            hits[place, number] = equal[axis, np.argmax(total - equal[axis])]
    return list(hits)


def _is_clearly_more(one: Hits, other: Hits) -> bool:
    difference = one.astype(np.float64) - other
    return bool(difference.mean() > _CLEAR * difference.std() / np.sqrt(len(one)))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
