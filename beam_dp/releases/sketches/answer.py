"""The part of `beam-dp answer` for sparse queries."""

from __future__ import annotations

import argparse
import dataclasses
import json

from beam_dp.errors import InputError
from beam_dp.flags.flag import FlagError
from beam_dp.flags.questions import refuse_others
from beam_dp.queries.sparse import SparseQuery
from beam_dp.queries.sparse_reader import of_type, read_sparse_query
from beam_dp.releases.sketches.release import SparseRelease, key_type_of
from beam_dp.reports.terminal import counted, print_wrapped, surely


def answer_sparse_release(release: SparseRelease, options: argparse.Namespace) -> None:
    """Prints the answer to the sparse query in a file."""
    refuse_others(options, ("sparse",))
    path = options.sparse
    if path is None:
        raise FlagError("--sparse is required: this release answers only sparse queries")
    try:
        query = read_query(release, path)
        answer = release.answer_query(query)
    except InputError as error:
        # An error in a line names the file and the line.
        if error.name.startswith(path):
            raise
        raise InputError("--sparse", error.value, error.condition) from None
    if options.json:
        print(json.dumps({"num_elements": query.sparsity, **dataclasses.asdict(answer)}))
        return
    unit = "records" if release.max_weight == 1 else "in weight"
    print(f"{answer.value:,.1f} {unit}, of {counted(query.sparsity, 'key')}")
    print_wrapped(
        f"The standard error is {answer.standard_error:,.1f};"
        f" {surely(answer.failure_probability)}, the error is at most {answer.bound:,.1f}."
    )


def read_query(release: SparseRelease, path: str) -> SparseQuery:
    """Returns the query in a file, with its keys converted to the type of the release's keys."""
    key_type = key_type_of(release.plan)
    query = read_sparse_query(path, keys="integer" if key_type == "integer" else "text")
    if key_type is None:
        return query
    return of_type(query, key_type)
