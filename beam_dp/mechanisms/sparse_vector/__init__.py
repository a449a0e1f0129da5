"""The sparse vector technique: reports which of many queries are above a threshold."""
