"""Command-line flags and how a bad one is refused. No Beam here."""
