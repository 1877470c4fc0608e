"""The memory of a device: the place of each value, and the steps of the program over it."""
