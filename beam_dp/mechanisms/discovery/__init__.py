"""Mechanisms that find the values of columns whose values are not declared."""
