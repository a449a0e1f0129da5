"""Files of releases: one module for each kind, and what all kinds share."""
