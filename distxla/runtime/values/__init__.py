"""What the rest of the runtime is about: hosts, handles, images in shared memory, device assignments, memory needed."""
