"""Reading of files and elements as batches of columns."""
