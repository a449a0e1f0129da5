"""Linear queries: what analysts ask of a table."""

from beam_dp.queries.linear import Explicit, LinearQuery, Parity, Product
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.reader import LinearQueries
from beam_dp.queries.sparse import SparseQuery
from beam_dp.queries.sparse_files import read_sparse_query
from beam_dp.queries.sparse_rows import row_conjunction, row_parity
from beam_dp.queries.workload import Workload, marginals, parse_workload, workload_from_json

__all__ = [
    "Explicit",
    "LinearQueries",
    "LinearQuery",
    "LinearWorkload",
    "Parity",
    "Product",
    "SparseQuery",
    "Workload",
    "marginals",
    "parse_linear_workload",
    "parse_workload",
    "read_sparse_query",
    "row_conjunction",
    "row_parity",
    "workload_from_json",
]
