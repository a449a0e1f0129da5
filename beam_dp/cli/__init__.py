"""The command `beam-dp`: its arguments and its output."""
