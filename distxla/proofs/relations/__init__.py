"""How a value of the sharded program is related to one of the unsharded program, as data."""
