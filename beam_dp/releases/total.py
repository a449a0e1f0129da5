"""A noisy number of records, and nothing else: public."""

from __future__ import annotations

from dataclasses import dataclass

from beam_dp.noise.bound import noise_variance
from beam_dp.releases.release import Release


@dataclass(frozen=True, eq=False, kw_only=True)
class TotalRelease(Release):
    """The number of records, with discrete Laplace noise.

    Args: as of ``Release``, and
        total: in records; may be negative.
        scale: of the noise.
    """

    total: int
    scale: float

    def noisy_number(self) -> tuple[float, float]:
        """See ``Release``."""
        return float(self.total), noise_variance("discrete_laplace", self.scale) ** 0.5
