"""A call of a program on all devices: loading, dispatch, injected faults, traces."""
