"""Faults on purpose: what `--inject` and `Cluster(inject=…)` ask for, where it happens, and what came of it."""
