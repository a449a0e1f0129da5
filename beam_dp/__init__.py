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
        DateAttribute,
        DatetimeAttribute,
        Domain,
        IntegerAttribute,
        NumericAttribute,
    )
    from beam_dp.domain.files import (
        parse_domain,
        read_domain,
    )
    from beam_dp.errors import InputError
    from beam_dp.mechanisms import (
        MWEM,
        CountSketch,
        Gaussian,
        HybridSketch,
        Laplace,
        MultisetChoice,
        PrivateMW,
        SmallDB,
        SparseMW,
        SparseProject,
        StabilityHistogram,
        draw_workload_answers,
        plan_private_mw,
        plan_sparse_mw,
        plan_workload_answers,
        release_sparse,
    )
    from beam_dp.mechanisms.sketches.key_profile import KeyProfile
    from beam_dp.planning.job import PlanningJob
    from beam_dp.planning.ranking import rank_mechanisms
    from beam_dp.planning.sketches.choices import plan_sparse_release
    from beam_dp.planning.sketches.job import SparsePlanningJob
    from beam_dp.planning.sketches.ranking import rank_sparse_mechanisms
    from beam_dp.privacy.guarantee import Guarantee, Neighboring
    from beam_dp.privacy.ledger import Ledger, LedgerError
    from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
    from beam_dp.queries.reader import LinearQueries
    from beam_dp.queries.sparse import SparseQuery
    from beam_dp.queries.sparse_files import read_sparse_query
    from beam_dp.queries.sparse_rows import row_conjunction, row_parity
    from beam_dp.queries.workload import Workload, marginals, parse_workload
    from beam_dp.releases import (
        IntervalRelease,
        ReleaseError,
        SparseRelease,
        SyntheticDatabase,
        read_release,
        write_release,
    )
    from beam_dp.transforms import (
        AnswerQueries,
        AnswerSparseQueries,
        AnswerWorkload,
        KeyColumns,
        ReadRecords,
        ReleaseIntervals,
        ReleaseProjection,
        ReleaseSyntheticDatabase,
        WriteAnswers,
        WriteRelease,
    )

_MODULES = {
    "beam_dp.domain": (
        "BooleanAttribute",
        "CategoricalAttribute",
        "DateAttribute",
        "DatetimeAttribute",
        "Domain",
        "IntegerAttribute",
        "NumericAttribute",
    ),
    "beam_dp.domain.files": ("parse_domain", "read_domain"),
    "beam_dp.errors": ("InputError",),
    "beam_dp.mechanisms": (
        "MWEM",
        "CountSketch",
        "Gaussian",
        "HybridSketch",
        "Laplace",
        "MultisetChoice",
        "PrivateMW",
        "SmallDB",
        "SparseMW",
        "SparseProject",
        "StabilityHistogram",
        "draw_workload_answers",
        "plan_private_mw",
        "plan_sparse_mw",
        "plan_workload_answers",
        "release_sparse",
    ),
    "beam_dp.mechanisms.sketches.key_profile": ("KeyProfile",),
    "beam_dp.planning.sketches.choices": ("plan_sparse_release",),
    "beam_dp.planning.job": ("PlanningJob",),
    "beam_dp.planning.ranking": ("rank_mechanisms",),
    "beam_dp.planning.sketches.job": ("SparsePlanningJob",),
    "beam_dp.planning.sketches.ranking": ("rank_sparse_mechanisms",),
    "beam_dp.privacy.guarantee": ("Guarantee", "Neighboring"),
    "beam_dp.privacy.ledger": ("Ledger", "LedgerError"),
    "beam_dp.queries.linear_workload": ("LinearWorkload", "parse_linear_workload"),
    "beam_dp.queries.reader": ("LinearQueries",),
    "beam_dp.queries.sparse": ("SparseQuery",),
    "beam_dp.queries.sparse_files": ("read_sparse_query",),
    "beam_dp.queries.sparse_rows": ("row_conjunction", "row_parity"),
    "beam_dp.queries.workload": ("Workload", "marginals", "parse_workload"),
    "beam_dp.releases": (
        "IntervalRelease",
        "ReleaseError",
        "SparseRelease",
        "SyntheticDatabase",
        "read_release",
        "write_release",
    ),
    "beam_dp.transforms": (
        "AnswerQueries",
        "AnswerSparseQueries",
        "AnswerWorkload",
        "KeyColumns",
        "ReadRecords",
        "ReleaseIntervals",
        "ReleaseProjection",
        "ReleaseSyntheticDatabase",
        "WriteAnswers",
        "WriteRelease",
    ),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "MWEM",
    "AnswerQueries",
    "AnswerSparseQueries",
    "AnswerWorkload",
    "BooleanAttribute",
    "CategoricalAttribute",
    "CountSketch",
    "DateAttribute",
    "DatetimeAttribute",
    "Domain",
    "Gaussian",
    "Guarantee",
    "HybridSketch",
    "InputError",
    "IntegerAttribute",
    "IntervalRelease",
    "KeyColumns",
    "KeyProfile",
    "Laplace",
    "Ledger",
    "LedgerError",
    "LinearQueries",
    "LinearWorkload",
    "MultisetChoice",
    "Neighboring",
    "NumericAttribute",
    "PlanningJob",
    "PrivateMW",
    "ReadRecords",
    "ReleaseError",
    "ReleaseIntervals",
    "ReleaseProjection",
    "ReleaseSyntheticDatabase",
    "SmallDB",
    "SparseMW",
    "SparsePlanningJob",
    "SparseProject",
    "SparseQuery",
    "SparseRelease",
    "StabilityHistogram",
    "SyntheticDatabase",
    "Workload",
    "WriteAnswers",
    "WriteRelease",
    "draw_workload_answers",
    "marginals",
    "parse_domain",
    "parse_linear_workload",
    "parse_workload",
    "plan_private_mw",
    "plan_sparse_mw",
    "plan_sparse_release",
    "plan_workload_answers",
    "rank_mechanisms",
    "rank_sparse_mechanisms",
    "read_domain",
    "read_release",
    "read_sparse_query",
    "release_sparse",
    "row_conjunction",
    "row_parity",
    "write_release",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
