"""Where a sharded program first leaves its unsharded twin: both run on the reference, and their values are compared."""
