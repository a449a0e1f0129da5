"""The mechanism for interval counts: one noisy measurement of an ordered attribute."""
