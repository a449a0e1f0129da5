"""The mechanism for tables of windows of a stream, and synthetic databases of windows."""
