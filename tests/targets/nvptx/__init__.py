"""Kernels for GPUs.

host_calls.py: test_programs.py, test_cublas.py
remainders.py: tests/ops/test_matrix.py
"""
