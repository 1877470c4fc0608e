"""The process of a device: the actor, the loop that serves calls, the user's functions."""
