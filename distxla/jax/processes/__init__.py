"""Several JAX processes on one cluster, which a process of its own owns."""
