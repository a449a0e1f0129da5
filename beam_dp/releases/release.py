"""The base class of all releases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from beam_dp.privacy.guarantee import Guarantee


@dataclass(frozen=True, eq=False, kw_only=True)
class Release:
    """A release of any kind: public, so it may be copied and queried at no further cost.

    What a kind says otherwise of itself it overrides. How it is read and written stands in
    ``files.kinds``.

    Args:
        draw_id: names one draw of noise; 32 hexadecimal digits.
        guarantee: what was promised to the people in the data.

    Attributes:
        read_from: the JSON values of the card that it was read from; None if it was made here.
    """

    KIND: ClassVar[str]  # its name in cards

    draw_id: str
    guarantee: Guarantee
    read_from: Mapping[str, Any] | None = field(default=None, init=False, repr=False)

    def noisy_number(self) -> tuple[float, float] | None:
        """Returns the noisy number of records, and its standard error.

        Returns:
            Both in records; None where the number is public, or no error of it is stated.
        """
        return None

    def not_counted(self) -> str:
        """Returns which records inside the domain it does not count, in words; empty if none."""
        return ""

    def public_keys(self) -> Mapping[str, str]:
        """Returns the public random values that were drawn before any record was read, by name."""
        return {}
