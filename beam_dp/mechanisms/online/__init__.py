"""Private multiplicative weights: answers to queries that arrive one after another."""
