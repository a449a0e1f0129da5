"""Linear queries: what analysts ask of a table."""

from beam_dp.queries.linear import Explicit, LinearQuery, Parity, Product
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.reader import LinearQueries
from beam_dp.queries.workload import Workload, marginals, parse_workload, workload_from_json

__all__ = [
    "Explicit",
    "LinearQueries",
    "LinearQuery",
    "LinearWorkload",
    "Parity",
    "Product",
    "Workload",
    "marginals",
    "parse_linear_workload",
    "parse_workload",
    "workload_from_json",
]
