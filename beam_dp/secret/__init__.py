"""Everything exact: records as cells, and tables of them; only mechanisms may read it."""
