"""Windows of a stream: which records count where, and which windows of a unit are kept. No Beam."""
