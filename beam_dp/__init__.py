"""Differentially private answers to very large classes of linear queries, on Apache Beam."""
