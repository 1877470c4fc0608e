"""Replicas as Ray actors, and the driver's side of them."""
