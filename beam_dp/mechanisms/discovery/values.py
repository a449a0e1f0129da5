"""Finds the texts of a column that enough privacy units have."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer, checked_number
from beam_dp.domain.discover import GRID
from beam_dp.errors import InputError
from beam_dp.privacy.accounting import discrete_parameter
from beam_dp.privacy.discovery import least_threshold
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.source import MAX_SCALE, NoiseSource
from beam_dp.privacy.rounding import Real

if TYPE_CHECKING:
    import pyarrow as pa

DISTRIBUTION = "discrete_gaussian"


@dataclasses.dataclass(frozen=True)
class ValuesPlan:
    """Releases the texts of one column whose noisy sum of weights reaches a threshold; public.

    A unit with m different texts (of at most k kept records) adds w = floor(G / sqrt(m)) to the sum
    of each, in steps of 1 / G of a unit. Every text that any unit has gets discrete Gaussian noise.

    Privacy: mu-Gaussian privacy with mu^2 = moved G^2 / (scale^2 - 4), except with probability
    ``slack``, for the relation and the unit of the guarantee; moved is 1, or 2 under replace-one.

    * Let S be the texts that other units than the moved ones have, or that both neighbours have. On
      S, adding a unit moves the sums by at most w sqrt(m) <= G in L2 norm. Replacing a unit moves
      them by at most sqrt(2) G: where both units have a text, the weights partly cancel.
    * All other texts belong to one moved unit alone, in one of the neighbours. Their noise is
      independent of that of S. So, if none of them reaches the threshold, the release has exactly
      the law of the release of S, and this fails in either neighbour with probability at most
      ``slack`` (``thresholds.alone_probability``). So the law of either neighbour is (1 - slack)
      times a law for which mu holds, plus the rest: this is ``Loss.slack``. Each neighbour has one
      moved unit, so the slack is not doubled under replace-one.
    * The texts that are released are at most ``max_values``, those with the largest noisy sums.
      This is a function of the noisy sums that reach the threshold.

    The slack covers this column. A unit may also be alone with k texts in every other open column,
    so the slacks of columns add up, as the squares of mu do.

    Accuracy: a text that u units have as their only text is released if u plus noise of standard
    deviation ``scale / G`` reaches ``threshold / G``. For the same mu, sums without weights need a
    noise sqrt(k) times as large. Laplace noise needs a higher threshold up to a mu of about 20,
    because its slack is ln(1 / slack), not its root, times the scale (see the tests).

    Reference: Korolova, Kenthapadi, Mishra and Ntoulas (2009) for the threshold; Gopi, Gulhane,
    Kulkarni, Shen, Shokouhi and Yekhanin (2020) for Gaussian noise with weights.
    """

    name: str
    num_moved: int
    max_records_per_unit: int
    max_values: int
    scale: float
    threshold: int
    slack: float
    grid: int = GRID

    def to_json(self) -> dict[str, Any]:
        """Returns the public fields of a card; scale and threshold in steps of 1 / grid."""
        return {
            "measured": self.name,
            "distribution": DISTRIBUTION,
            "max_values": self.max_values,
            "grid": self.grid,
            "scale": self.scale,
            "threshold": self.threshold,
            "slack": self.slack,
        }

    def release(
        self, texts: pa.Array, sums: NDArray[np.int64], noise: NoiseSource
    ) -> list[tuple[str, float]]:
        """Returns the found texts with their noisy sums in units, the largest sum first.

        ``texts``: every text that has a weight, once, as UTF-8; secret.
        ``sums``: the exact sums of ``encoding.open_values.kept_values``, shape (n,), int64; secret.

        Cost: that of ``NoiseSource.reaching``.
        """
        import pyarrow as pa

        kept, noisy = noise.reaching("gaussian", sums, self.scale, self.threshold)
        found = zip((-noisy).tolist(), texts.take(pa.array(kept)).to_pylist(), strict=True)
        # Ties are broken by text, so the order in which workers found the texts has no influence.
        first = sorted(found)[: self.max_values]
        return [(text.decode(), -negative / self.grid) for negative, text in first]


def plan_values(
    name: str,
    guarantee: Guarantee,
    mu: Real,
    slack: float,
    max_values: int,
    *,
    grid: int = GRID,
) -> ValuesPlan:
    """Returns the plan for one column, with the column's own part of mu and of the slack.

    Raises:
        InputError: if delta is 0, or the part of the budget is too small for the noise.
    """
    if guarantee.delta == 0:
        condition = "must be > 0 to discover texts: a release shows which texts the records contain"
        raise InputError("delta", 0.0, condition)
    checked_number("mu", mu, above=0)
    checked_number("slack", slack, above=0, below=0.5)
    checked_integer("max_values", max_values, 1)
    moved, k = guarantee.neighboring.num_moved, guarantee.max_records_per_unit
    scale = discrete_parameter(moved * (grid / Fraction(mu)) ** 2)
    if not scale <= MAX_SCALE:
        condition = "is too small to discover texts: use a larger one"
        raise InputError("epsilon", guarantee.epsilon, condition)
    threshold = least_threshold(scale, slack, k, grid)
    if not threshold < 2**62:
        condition = "are too many to discover texts"
        raise InputError("max_records_per_unit", k, condition)
    return ValuesPlan(name, moved, k, max_values, scale, threshold, slack, grid)
