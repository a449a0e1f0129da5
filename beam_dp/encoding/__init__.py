"""Records to cells of the domain, bounded per privacy unit."""
