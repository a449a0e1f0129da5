"""Windows of a stream: the window of each record, and the kept windows of a unit. Without Beam."""
