"""XLA's partitioner through jaxlib, in a process of its own; and what is read from JAX."""
