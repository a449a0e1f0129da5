"""Noisy answers to all linear queries of a workload, or to those with the largest answers."""
