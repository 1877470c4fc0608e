"""Why devices can't go on: one description, and all that is said of it."""
