"""Releases: public values that may be copied and queried at no further privacy cost."""
