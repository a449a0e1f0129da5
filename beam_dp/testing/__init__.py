"""Tools for testing mechanisms. Code that draws noise or makes releases never imports this."""
