"""The universe of records: attributes, their values, and how cells are numbered."""
