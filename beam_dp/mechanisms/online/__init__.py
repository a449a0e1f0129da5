"""Answers to queries that arrive one after another, by private multiplicative weights."""
