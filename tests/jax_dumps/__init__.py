"""Small programs as the installed JAX dumps them, in all three texts, with what XLA CPU computes."""
