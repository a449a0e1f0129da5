"""The part of `beam-dp answer` for sparse queries."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from beam_dp.errors import InputError
from beam_dp.queries.sparse import SparseQuery
from beam_dp.queries.sparse_files import read_sparse_query
from beam_dp.queries.sparse_reader import of_type
from beam_dp.releases.files.sketch_keys import key_type_of

if TYPE_CHECKING:
    from beam_dp.releases import SparseRelease


def answer_sparse(release: SparseRelease, path: str, *, as_json: bool) -> str:
    """Returns what to print of the answer of the sparse query in a file.

    Args:
        release: of which it is asked.
        path: of the file, see ``read_sparse_query``; keys of lines are of the release's type.
        as_json: whether to print JSON.

    Raises:
        InputError: if the file or the query is refused.
    """
    try:
        query = read_query(release, path)
        answer = release.answer_query(query)
    except InputError as error:
        # What is wrong with a line names the file and the line.
        if error.name.startswith(path):
            raise
        raise InputError("--sparse", error.value, error.condition) from None
    if as_json:
        found = {
            "num_elements": query.sparsity,
            "value": answer.value,
            "standard_error": answer.standard_error,
            "bound": answer.bound,
            "failure_probability": answer.failure_probability,
        }
        return json.dumps(found)
    unit = "records" if release.max_weight == 1 else "in weight"
    return (
        f"{answer.value:,.1f} {unit}, of {query.sparsity:,} keys\n"
        f"standard error {answer.standard_error:,.1f}\n"
        f"within {answer.bound:,.1f} but with probability {answer.failure_probability:g}"
    )


def read_query(release: SparseRelease, path: str) -> SparseQuery:
    """Returns the query in a file, whose keys are of the type of a release's.

    Raises:
        InputError: if the file is refused, or a key is of another type.
    """
    key_type = key_type_of(release.public)
    query = read_sparse_query(path, keys="integer" if key_type == "integer" else "text")
    if key_type is None:
        return query
    return of_type(query, key_type)
