"""What is private of JAX.

lowering.py: tests/jax/test_gpu_collectives.py
"""
