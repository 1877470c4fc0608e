"""`distxla.jax`.

lowering.py, values.py: test_jit.py
"""
