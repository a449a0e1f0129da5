"""Releases: public values that anyone may copy and query at no further privacy cost."""
