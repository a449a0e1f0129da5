"""SmallDB: a few records that answer all queries of a workload, drawn exactly."""
