"""Files and elements in, batches of columns out."""
