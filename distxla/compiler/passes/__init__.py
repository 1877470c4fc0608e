"""Module to module transformations; one pass a file."""
