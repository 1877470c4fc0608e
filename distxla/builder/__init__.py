"""Building modules from Python."""
