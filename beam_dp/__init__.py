"""Differentially private answers to very large classes of linear queries, on Apache Beam.

Every public name can be imported from here. The module of a name is loaded on first use, so
``import beam_dp`` is quick and does not need Beam.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beam_dp.installed import from_home, homes_of

if TYPE_CHECKING:
    from beam_dp.cli.releases import report as report
    from beam_dp.domain.attributes import (
        BooleanAttribute as BooleanAttribute,
        CategoricalAttribute as CategoricalAttribute,
    )
    from beam_dp.domain.dates import (
        DateAttribute as DateAttribute,
        DatetimeAttribute as DatetimeAttribute,
    )
    from beam_dp.domain.discover import (
        DiscoverBins as DiscoverBins,
        DiscoverValues as DiscoverValues,
        OpenAttribute as OpenAttribute,
        OpenDomain as OpenDomain,
    )
    from beam_dp.domain.files import (
        parse_domain as parse_domain,
        read_domain as read_domain,
        read_open_domain as read_open_domain,
    )
    from beam_dp.domain.horizon import Horizon as Horizon, WindowUnit as WindowUnit
    from beam_dp.domain.ordered import (
        IntegerAttribute as IntegerAttribute,
        NumericAttribute as NumericAttribute,
    )
    from beam_dp.domain.schemas.draft import DomainDraft as DomainDraft
    from beam_dp.domain.schemas.read import domain_draft as domain_draft
    from beam_dp.domain.universe import Domain as Domain
    from beam_dp.errors import InputError as InputError
    from beam_dp.imputation import impute as impute
    from beam_dp.in_memory import release as release
    from beam_dp.mechanisms.choosing import choose_top as choose_top, top_choice as top_choice
    from beam_dp.mechanisms.discovery.plan import (
        DomainPlan as DomainPlan,
        plan_domain as plan_domain,
        total_loss as total_loss,
    )
    from beam_dp.mechanisms.linear_answers import (
        draw_workload_answers as draw_workload_answers,
        plan_workload_answers as plan_workload_answers,
    )
    from beam_dp.mechanisms.marginals.measure_all import (
        MWEM as MWEM,
        Gaussian as Gaussian,
        Laplace as Laplace,
    )
    from beam_dp.mechanisms.online.private_mw import (
        PrivateMW as PrivateMW,
        plan_private_mw as plan_private_mw,
    )
    from beam_dp.mechanisms.online.sparse_mw import (
        SparseMW as SparseMW,
        plan_conjunctions as plan_conjunctions,
        plan_sparse_mw as plan_sparse_mw,
        release_conjunctions as release_conjunctions,
    )
    from beam_dp.mechanisms.sketches.errors import KeyProfile as KeyProfile
    from beam_dp.mechanisms.sketches.mechanisms import (
        CountSketch as CountSketch,
        HybridSketch as HybridSketch,
        SparseProject as SparseProject,
        StabilityHistogram as StabilityHistogram,
    )
    from beam_dp.mechanisms.sketches.plan import release_sparse as release_sparse
    from beam_dp.mechanisms.small_db.choice import MultisetChoice as MultisetChoice
    from beam_dp.mechanisms.small_db.small_db import SmallDB as SmallDB
    from beam_dp.mechanisms.top_queries import (
        draw_top_queries as draw_top_queries,
        plan_top_queries as plan_top_queries,
    )
    from beam_dp.mechanisms.windows.plan import (
        plan_window_databases as plan_window_databases,
        plan_window_tables as plan_window_tables,
    )
    from beam_dp.planning.job import (
        PlanningJob as PlanningJob,
        SparsePlanningJob as SparsePlanningJob,
    )
    from beam_dp.planning.ranking import (
        rank_mechanisms as rank_mechanisms,
        rank_sparse_mechanisms as rank_sparse_mechanisms,
    )
    from beam_dp.planning.sketches import plan_sparse_release as plan_sparse_release
    from beam_dp.privacy.guarantee import Guarantee as Guarantee, Neighboring as Neighboring
    from beam_dp.privacy.ledger.entries import LedgerError as LedgerError
    from beam_dp.privacy.ledger.ledger import Ledger as Ledger
    from beam_dp.queries.linear_workload import (
        LinearWorkload as LinearWorkload,
        parse_linear_workload as parse_linear_workload,
    )
    from beam_dp.queries.reader import LinearQueries as LinearQueries
    from beam_dp.queries.sparse import (
        RowConjunctions as RowConjunctions,
        SparseQuery as SparseQuery,
        read_sparse_query as read_sparse_query,
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
    from beam_dp.releases.differences import compare_releases as compare_releases
    from beam_dp.releases.domain.release import DomainRelease as DomainRelease
    from beam_dp.releases.files.card import ReleaseError as ReleaseError
    from beam_dp.releases.intervals.release import IntervalRelease as IntervalRelease
    from beam_dp.releases.kinds import (
        read_release as read_release,
        verify_release as verify_release,
        write_release as write_release,
    )
    from beam_dp.releases.sketches.release import SparseRelease as SparseRelease
    from beam_dp.releases.synthetic_database.release import SyntheticDatabase as SyntheticDatabase
    from beam_dp.releases.verdict import Verification as Verification
    from beam_dp.releases.windows.horizon_files import read_windows as read_windows
    from beam_dp.releases.windows.release import HorizonRelease as HorizonRelease
    from beam_dp.secret.encoding.keys import KeyColumns as KeyColumns
    from beam_dp.transforms.answers import (
        AnswerRows as AnswerRows,
        WriteAnswers as WriteAnswers,
    )
    from beam_dp.transforms.drawing.answer_queries import (
        AnswerQueries as AnswerQueries,
        AnswerSparseQueries as AnswerSparseQueries,
        AnswerWorkload as AnswerWorkload,
    )
    from beam_dp.transforms.drawing.release import (
        ReleaseDomain as ReleaseDomain,
        ReleaseSyntheticDatabase as ReleaseSyntheticDatabase,
    )
    from beam_dp.transforms.intervals import (
        IntervalRows as IntervalRows,
        ReleaseIntervals as ReleaseIntervals,
    )
    from beam_dp.transforms.reading.read import ReadRecords as ReadRecords
    from beam_dp.transforms.reading.read_arrivals import ReadArrivals as ReadArrivals
    from beam_dp.transforms.reading.read_kafka import ReadKafka as ReadKafka
    from beam_dp.transforms.reading.released_rows import (
        MarginalRows as MarginalRows,
        SyntheticRows as SyntheticRows,
    )
    from beam_dp.transforms.sketches import ReleaseProjection as ReleaseProjection
    from beam_dp.transforms.windows import (
        ReleaseWindows as ReleaseWindows,
        WindowRows as WindowRows,
        begin_windows as begin_windows,
    )
    from beam_dp.transforms.writing import WriteRelease as WriteRelease


_HOMES = homes_of(__file__)

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    return from_home(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
