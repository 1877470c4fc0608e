"""Fault injection: the faults of `--inject` and `Cluster(inject=…)`, where they happen, and which have happened."""
