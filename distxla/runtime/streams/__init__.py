"""Infeed, outfeed and host transfers: items in shared memory, and their two ends."""
