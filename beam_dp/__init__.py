"""Differentially private answers to very large classes of linear queries, on Apache Beam.

Every public name can be imported from here; the part of the package behind it is loaded when it
is first used, so that ``import beam_dp`` stays quick and needs no Beam.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from beam_dp.installed import missing_part

if TYPE_CHECKING:
    from beam_dp.cli.report import report as report
    from beam_dp.domain import (
        BooleanAttribute as BooleanAttribute,
        CategoricalAttribute as CategoricalAttribute,
        DateAttribute as DateAttribute,
        DatetimeAttribute as DatetimeAttribute,
        Domain as Domain,
        IntegerAttribute as IntegerAttribute,
        NumericAttribute as NumericAttribute,
    )
    from beam_dp.domain.files import parse_domain as parse_domain, read_domain as read_domain
    from beam_dp.errors import InputError as InputError
    from beam_dp.in_memory import release as release
    from beam_dp.mechanisms import (
        MWEM as MWEM,
        CountSketch as CountSketch,
        Gaussian as Gaussian,
        HybridSketch as HybridSketch,
        Laplace as Laplace,
        MultisetChoice as MultisetChoice,
        PrivateMW as PrivateMW,
        SmallDB as SmallDB,
        SparseMW as SparseMW,
        SparseProject as SparseProject,
        StabilityHistogram as StabilityHistogram,
        choose_top as choose_top,
        draw_top_queries as draw_top_queries,
        draw_workload_answers as draw_workload_answers,
        plan_conjunctions as plan_conjunctions,
        plan_private_mw as plan_private_mw,
        plan_sparse_mw as plan_sparse_mw,
        plan_top_queries as plan_top_queries,
        plan_window_databases as plan_window_databases,
        plan_window_tables as plan_window_tables,
        plan_workload_answers as plan_workload_answers,
        release_conjunctions as release_conjunctions,
        release_sparse as release_sparse,
        top_choice as top_choice,
    )
    from beam_dp.mechanisms.sketches.key_profile import KeyProfile as KeyProfile
    from beam_dp.planning.job import PlanningJob as PlanningJob
    from beam_dp.planning.ranking import rank_mechanisms as rank_mechanisms
    from beam_dp.planning.sketches.choices import plan_sparse_release as plan_sparse_release
    from beam_dp.planning.sketches.job import SparsePlanningJob as SparsePlanningJob
    from beam_dp.planning.sketches.ranking import rank_sparse_mechanisms as rank_sparse_mechanisms
    from beam_dp.privacy.guarantee import Guarantee as Guarantee, Neighboring as Neighboring
    from beam_dp.privacy.ledger import Ledger as Ledger, LedgerError as LedgerError
    from beam_dp.queries.linear_workload import (
        LinearWorkload as LinearWorkload,
        parse_linear_workload as parse_linear_workload,
    )
    from beam_dp.queries.reader import LinearQueries as LinearQueries
    from beam_dp.queries.row_families import RowConjunctions as RowConjunctions
    from beam_dp.queries.sparse import SparseQuery as SparseQuery
    from beam_dp.queries.sparse_files import read_sparse_query as read_sparse_query
    from beam_dp.queries.sparse_rows import (
        row_conjunction as row_conjunction,
        row_disjunction as row_disjunction,
        row_parity as row_parity,
    )
    from beam_dp.queries.vc_dimension import workload_vc_dimension as workload_vc_dimension
    from beam_dp.queries.workload import (
        Workload as Workload,
        marginals as marginals,
        parse_workload as parse_workload,
    )
    from beam_dp.releases import (
        HorizonRelease as HorizonRelease,
        IntervalRelease as IntervalRelease,
        ReleaseError as ReleaseError,
        SparseRelease as SparseRelease,
        SyntheticDatabase as SyntheticDatabase,
        compare_releases as compare_releases,
        read_release as read_release,
        read_windows as read_windows,
        write_release as write_release,
    )
    from beam_dp.schemas import DomainDraft as DomainDraft, domain_draft as domain_draft
    from beam_dp.transforms import (
        AnswerQueries as AnswerQueries,
        AnswerSparseQueries as AnswerSparseQueries,
        AnswerWorkload as AnswerWorkload,
        KeyColumns as KeyColumns,
        ReadArrivals as ReadArrivals,
        ReadKafka as ReadKafka,
        ReadRecords as ReadRecords,
        ReleaseIntervals as ReleaseIntervals,
        ReleaseProjection as ReleaseProjection,
        ReleaseSyntheticDatabase as ReleaseSyntheticDatabase,
        ReleaseWindows as ReleaseWindows,
        SyntheticRows as SyntheticRows,
        WriteAnswers as WriteAnswers,
        WriteRelease as WriteRelease,
        begin_windows as begin_windows,
    )
    from beam_dp.verification import (
        Verification as Verification,
        verify_release as verify_release,
    )
    from beam_dp.windows import Horizon as Horizon, WindowUnit as WindowUnit

_MODULES = {
    "beam_dp.cli.report": ("report",),
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
    "beam_dp.in_memory": ("release",),
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
        "choose_top",
        "draw_top_queries",
        "draw_workload_answers",
        "plan_conjunctions",
        "plan_private_mw",
        "plan_sparse_mw",
        "plan_top_queries",
        "plan_window_databases",
        "plan_window_tables",
        "plan_workload_answers",
        "release_conjunctions",
        "release_sparse",
        "top_choice",
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
    "beam_dp.queries.row_families": ("RowConjunctions",),
    "beam_dp.queries.sparse": ("SparseQuery",),
    "beam_dp.queries.sparse_files": ("read_sparse_query",),
    "beam_dp.queries.sparse_rows": ("row_conjunction", "row_disjunction", "row_parity"),
    "beam_dp.queries.vc_dimension": ("workload_vc_dimension",),
    "beam_dp.queries.workload": ("Workload", "marginals", "parse_workload"),
    "beam_dp.releases": (
        "HorizonRelease",
        "IntervalRelease",
        "ReleaseError",
        "SparseRelease",
        "SyntheticDatabase",
        "compare_releases",
        "read_release",
        "read_windows",
        "write_release",
    ),
    "beam_dp.schemas": ("DomainDraft", "domain_draft"),
    "beam_dp.transforms": (
        "AnswerQueries",
        "AnswerSparseQueries",
        "AnswerWorkload",
        "KeyColumns",
        "ReadArrivals",
        "ReadKafka",
        "ReadRecords",
        "ReleaseIntervals",
        "ReleaseProjection",
        "ReleaseSyntheticDatabase",
        "ReleaseWindows",
        "SyntheticRows",
        "WriteAnswers",
        "WriteRelease",
        "begin_windows",
    ),
    "beam_dp.verification": ("Verification", "verify_release"),
    "beam_dp.windows": ("Horizon", "WindowUnit"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        cure = missing_part(error)
        if cure is None:
            raise
        raise ModuleNotFoundError(f"beam_dp.{name}: {cure}", name=error.name) from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
