"""Kernels for a processor.

buffer_emitter.py: test_imported_calls.py
complex_functions.py, complex_numbers.py: tests/ops/test_matrix.py (accuracy.py), tests/ops/test_wider_types.py
contraction.py: test_gemm_micro_kernel.py, tests/ops/test_dot.py
exponentials.py, trigonometry.py: test_math.py (accuracy.py), tests/ops/test_matrix.py
loops.py: test_fusion.py
reduction.py: test_fusion.py, tests/ops/test_reduce.py, tests/compiler/passes/test_fuse_rows.py
row_fusions.py: tests/compiler/passes/test_fuse_rows.py
scalar_expression.py: test_arithmetic.py, tests/ops/test_matrix.py
"""
