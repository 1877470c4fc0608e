"""The memory of a device: which value lies where, and the steps of the program over it."""
