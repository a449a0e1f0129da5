"""Command-line flags, and the errors for invalid flags. Does not import Beam."""
