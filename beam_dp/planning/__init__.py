"""Planning: predicts the error and cost of every mechanism for a job, without reading data."""
