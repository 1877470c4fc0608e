"""Models of the protocols: what each side does with the shared words, over one place, which every round uses again."""
