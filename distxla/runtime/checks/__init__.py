"""What a run is checked for on request: values that are not finite, and replicas that differ."""
