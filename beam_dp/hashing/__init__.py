"""Hash families of exact r-wise independence, for projections of huge universes."""
