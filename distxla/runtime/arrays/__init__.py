"""Arrays on devices, and the executables that take and return them."""
