"""Tools for testing mechanisms. No code that draws noise or makes a release imports them."""
