"""Linear queries: what analysts ask of a table."""

from beam_dp.queries.disjunction import Disjunction as Disjunction, negation as negation
from beam_dp.queries.linear import (
    Explicit as Explicit,
    LinearQuery as LinearQuery,
    Parity as Parity,
    Product as Product,
)
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
from beam_dp.queries.vc_dimension import (
    VCDimension as VCDimension,
    is_shattered as is_shattered,
    matrix_vc_dimension as matrix_vc_dimension,
    sauer_bound as sauer_bound,
    workload_vc_dimension as workload_vc_dimension,
)
from beam_dp.queries.vc_families import (
    family_vc_dimension as family_vc_dimension,
    short_conjunctions_vc_bounds as short_conjunctions_vc_bounds,
)
from beam_dp.queries.workload import (
    Workload as Workload,
    marginals as marginals,
    parse_workload as parse_workload,
    workload_from_json as workload_from_json,
)
