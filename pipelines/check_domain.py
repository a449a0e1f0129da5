"""Show how the domain maps each value in a public or made-up sample, before any release.

    beam-dp check-domain --domain visits.json --sample made_up_visits.csv

The rows must be public or made up, because their values are printed. They are read and encoded by
the same code as in a release. The exit code is 0 if every row is kept, 1 if a row is left out, a
line is no record, or a file would be refused, 2 for a bad argument.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from beam_dp.domain.discover import OpenDomain
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError, ReadError
from beam_dp.flags import shared
from beam_dp.flags.flag import Flag, integer, integer_flag
from beam_dp.secret.encoding.check import ColumnCheck, DomainCheck

from .flags import domain_at, read_records
from .progress import Progress
from .running import run_main

if TYPE_CHECKING:
    from beam_dp.transforms.reading.read import ReadRecords

EXIT_LEFT_OUT = 1
SAMPLE = Flag(
    "sample",
    "files of public or made-up rows, never confidential ones, because their values are printed",
    "GLOB",
    True,
    form="files",
)
LIMIT = integer_flag(
    "limit",
    "the number of values to show per attribute: left-out values first, then the most frequent",
    "N",
    default="20",
    limits={"least": 0},
)
JSON = Flag("json", "print JSON, with the values of the sample", is_switch=True)
FLAGS = (shared.DOMAIN, SAMPLE, shared.INPUT_FORMAT, LIMIT, JSON)


def check_sample(domain: Domain, sample: ReadRecords) -> tuple[DomainCheck, list[str]]:
    """Reads a sample as a release would; returns the check, and the reasons for a refusal."""
    refusals = []
    for attribute in domain:
        try:
            sample.check_column("domain", attribute.name, attribute)
        except InputError as error:
            refusals.append(f"{attribute.name}: {error.condition}")
    check = DomainCheck(domain)
    for path, num_bytes in sample.files:
        try:
            batches = sample.file_batches(
                path, num_bytes, domain.names, domain, may_lack=True, faults=check.faults
            )
            for batch in batches:
                check.add(batch)
        except ReadError as error:
            refusals.append(str(error))
    check.num_rows += check.faults.total()
    check.num_left_out += check.faults.total()
    return check, refusals


def _run(given: dict[str, str], _: Sequence[str], __: Progress) -> int:
    limit = integer("limit", given["limit"])
    domain = domain_at(given["domain"])
    if isinstance(domain, OpenDomain):
        domain = domain.bounded()
    try:
        sample = read_records(given["sample"], file_format=given.get("input_format"))
    except InputError as error:
        name = "sample" if error.name == "input" else error.name
        raise InputError(name, error.value, error.condition) from None
    check, refusals = check_sample(domain, sample)
    if "json" in given:
        report = {
            "rows": check.num_rows,
            "left_out": check.num_left_out,
            "malformed_lines": dict(check.faults.most_common(limit)),
            "impossible": check.num_impossible,
            "refusals": refusals,
            "attributes": [column.to_json(limit) for column in check.columns],
        }
        print(json.dumps(report, ensure_ascii=False))
    else:
        _print(check, refusals, limit)
    return EXIT_LEFT_OUT if check.num_left_out or refusals else 0


def _print(check: DomainCheck, refusals: Sequence[str], limit: int) -> None:
    print("The values of these rows are shown. Use only rows that are public or made up.\n")
    for column in check.columns:
        _print_column(column, limit)
    for refusal in refusals:
        print(f"a release would refuse this input: {refusal}")
    if check.num_impossible:
        print(f"{check.num_impossible:,} rows match an impossible combination and are left out")
    for fault, number in check.faults.most_common(limit):
        lines = "1 line is no record" if number == 1 else f"{number:,} lines are no records"
        print(f"{lines}: {fault}")
    print(f"{check.num_left_out:,} of {check.num_rows:,} rows are left out of a release")


def _print_column(check: ColumnCheck, limit: int) -> None:
    print(f"{check.attribute.name} ({check.attribute.kind})")
    ordered = check.ordered_fates()
    for (value, fate), count in ordered[:limit]:
        print(f"  {count:>9,}  {value} -> {fate}")
    if len(ordered) > limit:
        print(f"  and {len(ordered) - limit:,} more values; --limit shows more")
    if check.has_bins:
        levels = [*check.rows_by_level().items()]
        print("  rows by bin")
        for label, count in levels[:limit]:
            print(f"  {count:>9,}  {label}")
        if len(levels) > limit:
            print(f"  and {len(levels) - limit:,} more bins; --limit shows more")
    if check.num_left_out:
        rows = "1 row is" if check.num_left_out == 1 else f"{check.num_left_out:,} rows are"
        print(f"  {rows} left out: no level has such a value")
        for hint in check.hints()[:limit]:
            print(f"  {hint}")
        if (cure := check.suggestion()) is not None:
            keys, kept = cure
            written = json.dumps(keys, ensure_ascii=False)[1:-1]
            print(f"  {kept:,} of these would be kept, if this is what the values mean, with")
            print(f"    {written}")
    print()


# The exit code: 0, 1 if rows are left out, 2 if the command line is invalid.
main = partial(run_main, "check_domain", FLAGS, __doc__, _run)

if __name__ == "__main__":
    sys.exit(main())
