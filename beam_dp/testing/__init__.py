"""Tools for testing mechanisms. Nothing that draws noise or makes a release imports them."""
