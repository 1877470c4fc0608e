"""This machine's resources, and this process's share of them."""
