"""Linear queries: the questions that analysts ask about a table."""
