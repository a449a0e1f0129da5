"""Writing of releases and answers to files."""
