"""Planning: predicted errors and costs of every mechanism for a job; reads no data."""
