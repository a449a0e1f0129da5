"""What a release reveals, recomputed from the noise that its card states."""
