"""Flags of the programs and the command line, and how a bad one is refused. No Beam here."""
