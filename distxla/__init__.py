"""Run XLA HLO programs on all their replicas and partitions, as real processes."""
