"""SmallDB: draws a few records that answer all queries of a workload; the draw is exact."""
