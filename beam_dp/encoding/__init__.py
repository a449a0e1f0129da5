"""Encoding of records as cells of the domain, with limited contributions of each unit.

``records`` describes how values are read, and what happens to a value outside the domain.
"""
