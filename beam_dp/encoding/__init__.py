"""Encoding of records as cells of the domain, with limited contributions of each unit."""
