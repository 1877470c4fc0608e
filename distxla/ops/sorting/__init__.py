"""The algorithms of `sort`, and what they find out about its comparator."""
