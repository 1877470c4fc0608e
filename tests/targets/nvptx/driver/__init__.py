"""The driver of GPUs, emulated and, where there is a GPU, NVIDIA's.

emulated/context.py, emulated/memory.py: test_drivers.py, test_emulated.py
"""
