"""From records to exact summaries: encode, limit contributions, count."""
