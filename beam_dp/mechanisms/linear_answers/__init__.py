"""Noisy answers to all linear queries of a workload, or to the queries with the largest answers."""
