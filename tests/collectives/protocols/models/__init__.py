"""Models of the protocols: the accesses of each side to shared words, over one place, which every round uses again."""
