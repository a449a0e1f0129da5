"""Mechanisms: the only code that turns a secret exact summary into a public release."""
