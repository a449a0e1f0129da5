"""The command `beam-dp combine`, which makes one release from two of the same records."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from beam_dp.errors import InputError
from beam_dp.flags.command_line import Command
from beam_dp.flags.flag import Flag
from beam_dp.flags.shared import OUTPUT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from beam_dp.releases.synthetic_database.release import SyntheticDatabase


def _combine(options: argparse.Namespace) -> None:
    """Writes one release from the noisy tables of two, and prints the composed guarantee."""
    from beam_dp.mechanisms.marginals.combined import combine_releases
    from beam_dp.releases.files.commit import check_free
    from beam_dp.releases.kinds import read_release, write_release
    from beam_dp.releases.synthetic_database.release import SyntheticDatabase
    from beam_dp.verification.steps import above

    check_free(options.output)
    places = {"A": options.first, "B": options.second}
    read = {name: read_release(each, kind=SyntheticDatabase) for name, each in places.items()}
    if options.ledger is not None:
        _check_dataset(options.ledger, read)
    try:
        found = combine_releases(*read.values())
    except InputError as error:
        name = {"first": "A", "second": "B"}.get(error.name, error.name)
        raise InputError(name, error.value, error.condition) from None
    write_release(found, options.output)
    promised = found.guarantee
    print(
        f"{options.output}: both together keep epsilon {above(promised.epsilon)} at delta"
        f" {promised.delta:g}; nothing was spent"
    )


def _check_dataset(url: str, releases: Mapping[str, SyntheticDatabase]) -> None:
    """Refuses releases that a ledger does not know, or that were paid for from other datasets."""
    from beam_dp.privacy.ledger.ledger import Ledger
    from beam_dp.releases.synthetic_database.promises import promises_of

    ledger, dataset = Ledger(url), None
    known = {
        each: entry.dataset_id
        for data in ledger.datasets()
        for entry in ledger.entries(data.dataset_id)
        for each in (entry.release_id, entry.draw_id)
        if each is not None
    }
    for name, release in releases.items():
        for draw in promises_of(release):
            own = draw.draw_id
            named = str(draw.stated.parameters.get("ledger_release"))
            paid = known.get(named, known.get(own))
            if paid is None:
                condition = f"must have an entry for draw {own} of {name}"
                raise InputError("ledger", ledger.name, condition)
            dataset = dataset or paid
            if paid != dataset:
                condition = f"must be of dataset {dataset}, as A is"
                raise InputError(name, f"draw {own} of dataset {paid}", condition)


_FLAGS = (
    Flag("first", "directory with a synthetic database", "A", is_positional=True),
    Flag(
        "second",
        "directory with another one, of the same domain and from the same records; nothing in a"
        " release shows its records, so only you can know that they are the same",
        "B",
        is_positional=True,
    ),
    OUTPUT,
    Flag("ledger", "the ledger that paid for both, to check that it names the same dataset", "URL"),
)
COMMANDS = {
    "combine": Command(
        _FLAGS,
        _combine,
        "It reads no records and spends no budget. The new card states the privacy loss of both"
        " releases together, which you have already spent.",
    ),
}
