"""Reports: one self-contained HTML page for people, from a release alone, or with its records."""
