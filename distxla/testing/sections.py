"""Titles of sections in the reports of tests."""

CLUSTERS = "distxla clusters"  # what became of clusters
DIAGNOSIS = "distxla: why devices could not go on"
