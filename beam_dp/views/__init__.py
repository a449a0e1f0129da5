"""What people see of releases, on the terminal, as a page and in notebooks."""
