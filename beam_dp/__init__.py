"""Differentially private answers to very large classes of linear queries, on Apache Beam.

Every public name can be imported from here; the part of the package behind it is loaded when it
is first used, so that ``import beam_dp`` stays quick and needs no Beam.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beam_dp.domain import (
        BooleanAttribute,
        CategoricalAttribute,
        Domain,
        IntegerAttribute,
        NumericAttribute,
    )
    from beam_dp.domain_json import parse_domain, read_domain
    from beam_dp.errors import InputError
    from beam_dp.mechanisms import (
        MWEM,
        Gaussian,
        Laplace,
        PrivateMW,
        SparseMW,
        plan_private_mw,
        plan_sparse_mw,
    )
    from beam_dp.privacy.guarantee import Guarantee, Neighboring
    from beam_dp.privacy.ledger import Ledger, LedgerError
    from beam_dp.queries.reader import LinearQueries
    from beam_dp.queries.sparse import SparseQuery
    from beam_dp.queries.sparse_files import read_sparse_query
    from beam_dp.queries.workload import Workload, marginals, parse_workload
    from beam_dp.releases import ReleaseError, SyntheticDatabase, read_release, write_release
    from beam_dp.transforms import ReadRecords, ReleaseSyntheticDatabase, WriteRelease

_MODULES = {
    "beam_dp.domain": (
        "BooleanAttribute",
        "CategoricalAttribute",
        "Domain",
        "IntegerAttribute",
        "NumericAttribute",
    ),
    "beam_dp.domain_json": ("parse_domain", "read_domain"),
    "beam_dp.errors": ("InputError",),
    "beam_dp.mechanisms": (
        "MWEM",
        "Gaussian",
        "Laplace",
        "PrivateMW",
        "SparseMW",
        "plan_private_mw",
        "plan_sparse_mw",
    ),
    "beam_dp.privacy.guarantee": ("Guarantee", "Neighboring"),
    "beam_dp.privacy.ledger": ("Ledger", "LedgerError"),
    "beam_dp.queries.reader": ("LinearQueries",),
    "beam_dp.queries.sparse": ("SparseQuery",),
    "beam_dp.queries.sparse_files": ("read_sparse_query",),
    "beam_dp.queries.workload": ("Workload", "marginals", "parse_workload"),
    "beam_dp.releases": ("ReleaseError", "SyntheticDatabase", "read_release", "write_release"),
    "beam_dp.transforms": ("ReadRecords", "ReleaseSyntheticDatabase", "WriteRelease"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "MWEM",
    "BooleanAttribute",
    "CategoricalAttribute",
    "Domain",
    "Gaussian",
    "Guarantee",
    "InputError",
    "IntegerAttribute",
    "Laplace",
    "Ledger",
    "LedgerError",
    "LinearQueries",
    "Neighboring",
    "NumericAttribute",
    "PrivateMW",
    "ReadRecords",
    "ReleaseError",
    "ReleaseSyntheticDatabase",
    "SparseMW",
    "SparseQuery",
    "SyntheticDatabase",
    "Workload",
    "WriteRelease",
    "marginals",
    "parse_domain",
    "parse_workload",
    "plan_private_mw",
    "plan_sparse_mw",
    "read_domain",
    "read_release",
    "read_sparse_query",
    "write_release",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
