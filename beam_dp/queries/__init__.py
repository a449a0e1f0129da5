"""Linear queries: what analysts ask of a table."""

from beam_dp.queries.workload import Workload, marginals, parse_workload, workload_from_json

__all__ = ["Workload", "marginals", "parse_workload", "workload_from_json"]
