"""Reports: a self-contained HTML page about a release, with or without the original records."""
