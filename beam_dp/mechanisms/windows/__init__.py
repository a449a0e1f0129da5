"""Mechanisms for windows of a stream: one set of tables, or one synthetic database, per window."""
