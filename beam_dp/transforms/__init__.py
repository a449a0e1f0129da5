"""The Beam layer: thin transforms around the Beam-free packages."""
