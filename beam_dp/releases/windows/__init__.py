"""Windows of a stream: their values, files, verification, and the words about them."""
