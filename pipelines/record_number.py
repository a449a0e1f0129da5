"""Warnings about a released number of records near 0, or far from what was expected.

It is computed by the submitting program from the release that was committed, and from a number that
the user typed: from nothing that is private, so that it costs nothing and tells nothing more. That
number goes nowhere else: not to the workers, the card, the ledger or a log, only to the terminal.
"""

from __future__ import annotations

from typing import Literal

from beam_dp.checks import checked_integer
from beam_dp.errors import InputError
from beam_dp.flags.numbers import integer
from beam_dp.flags.shared import EXPECT_RECORDS
from beam_dp.mechanisms.contract import MAX_RECORDS
from beam_dp.releases.release import Release

# So many standard errors away is no accident.
_STANDARD_ERRORS = 3


def read_expected(given: dict[str, str], num_records: int | Literal["noisy"]) -> int | None:
    """Returns the number of records that the user expects, if it was given.

    Args:
        given: the texts of flags.
        num_records: that of the release: only a noisy one can tell anything.

    Raises:
        InputError: if it is refused.
    """
    text = given.get(EXPECT_RECORDS.name)
    if text is None:
        return None
    if num_records != "noisy":
        condition = "must be given with --num_records noisy only: a public number is kept as it is"
        raise InputError(EXPECT_RECORDS.name, text, condition)
    name = EXPECT_RECORDS.name
    return checked_integer(name, integer(name, text), 1, MAX_RECORDS)


def warning_of_number(release: Release, expected: int | None) -> str | None:
    """Returns what to say of the noisy number of records; None where all is well.

    Args:
        release: as it was committed and read back.
        expected: what the user expects, or None.
    """
    found = release.noisy_number()
    if found is None:
        return None
    number, error = found
    wrong = []
    # A number that was not above 0 is stated as 1.
    if number <= max(_STANDARD_ERRORS * error, 1):
        wrong.append(f"within {_STANDARD_ERRORS} standard errors of 0")
    if expected is not None and not abs(number - expected) <= _STANDARD_ERRORS * error:
        side = "above" if number > expected else "below"
        wrong.append(
            f"more than {_STANDARD_ERRORS} standard errors {side}"
            f" --{EXPECT_RECORDS.name} {expected:,}"
        )
    if not wrong:
        return None
    told = (
        f"the noisy number of records is {number:,.0f} (standard error {error:,.3g}):"
        f" {' and '.join(wrong)}"
    )
    if expected is not None and number - expected > _STANDARD_ERRORS * error:
        return f"{told}; compare --input with what you expect: some records may be there twice"
    if getattr(release, "left_out", None) is not None:
        advice = "`beam-dp describe` shows about how many were, and at which attribute"
    else:
        advice = (
            "try the domain on rows that are public or made up, by `beam-dp check-domain"
            " --domain D --sample FILE`; --count_left_out of another release, which costs budget,"
            " counts them"
        )
    lost = "outside the domain"
    if release.guarantee.privacy_unit != "record":
        lost += ", without a unit or beyond --max_records_per_unit"
    if release.not_counted():
        lost += f", or {release.not_counted()}"
    return f"{told}; many records may have been left out: {lost}; {advice}"
