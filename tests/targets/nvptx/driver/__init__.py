"""The driver of GPUs, emulated and, where there is a GPU, NVIDIA's."""
