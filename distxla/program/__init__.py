"""A compiled program as the compiler and the runtime know it."""
