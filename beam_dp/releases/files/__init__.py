"""The parts of release files that all kinds of releases share: Avro, cards and commits."""
