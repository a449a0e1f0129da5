"""The check that the release in the output is of the job that has just ended.

Another job may have written there first: a worker of an earlier one that was late, or a job that
somebody else started at the same time. Its draw was committed, then, and this job's discarded.

With a ledger the card names the entry that paid, which is of one job only. Without one, what the
card promises is compared with what this job does: guarantee, mechanism and public plan. Jobs that
promise the same in everything can't be told apart by that, as one that is simply started again;
but for ``release_projection``, where each job draws a hash key.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from beam_dp.domain.strict_json import checked_json
from beam_dp.errors import shown
from beam_dp.privacy.ledger.entries import Token
from beam_dp.releases.files.card import CARD
from beam_dp.releases.release import Release
from beam_dp.storage.of_url import store_for


def is_own(release: Release, output: str, promised: Mapping[str, Any], token: Token | None) -> bool:
    """Returns whether a release is of this job, and says in a line why not.

    Args:
        release: as it was read from the output.
        output: of the job.
        promised: part of this job's card, as JSON values, known before any record was read.
        token: what this job has paid, if it has.
    """
    card = checked_json("card", CARD, store_for(output, "output").read(CARD).decode())
    reason = other_than({**card, **release.public_keys()}, promised, token)
    if reason is None:
        return True
    stays = "" if token is None else f", and {token.release_id} stays marked as spent"
    print(
        f"error: --output: {output!r} holds the release of another job: {reason}; what this job"
        f" drew was discarded{stays}",
        file=sys.stderr,
    )
    return False


def other_than(
    card: Mapping[str, Any], promised: Mapping[str, Any], token: Token | None
) -> str | None:
    """Returns what shows that a release is of another job; None if it is of this one.

    Args:
        card: of the release, as JSON values, with its public keys, if any.
        promised: as for ``is_own``.
        token: as for ``is_own``.

    Example:
        >>> other_than({"mechanism": "mwem"}, {"mechanism": "mwem"}, None)
        >>> other_than({"guarantee": {"epsilon": 1}}, {"guarantee": {"epsilon": 0.5}}, None)
        'guarantee.epsilon is 1 there, and 0.5 in this job'
    """
    # Answers name the entry beside their plan, releases among their parameters.
    paid_by = {**card, **card.get("parameters", {})}.get("ledger_release")
    if paid_by != (None if token is None else token.release_id):
        return f"{paid_by or 'no ledger'} paid for it"
    return _difference(card, json.loads(json.dumps(promised)), "")


def _difference(found: Any, expected: Any, name: str) -> str | None:
    """Returns the first field that differs, among those that are expected."""
    if isinstance(found, Mapping) and isinstance(expected, dict):
        for key, value in expected.items():
            difference = _difference(found.get(key), value, f"{name}.{key}" if name else key)
            if difference is not None:
                return difference
        return None
    if found == expected:
        return None
    return f"{name} is {shown(found)} there, and {shown(expected)} in this job"
