"""The runtime's protocols in one process on virtual time, every interleaving drawn from a seed: docs/simulation.md."""
