"""The algorithms of `sort`, and the analysis of its comparator."""
