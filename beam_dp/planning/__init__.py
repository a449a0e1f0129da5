"""Which mechanism for a job, how wrong and how expensive: from public numbers, reading no data."""
