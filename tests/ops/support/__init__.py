"""What ops share.

convolution_kernel.py: tests/ops/test_convolution.py
dot_dimensions.py: tests/ops/test_dot.py, tests/ops/test_ragged_and_scaled_dot.py
expansion.py, an interface: tests/compiler/passes/test_expand.py
liveness.py: tests/scheduler/test_memory.py, tests/compiler/plan/test_buffers.py
matrix_views.py: tests/ops/test_dot.py, tests/compiler/lower/grid/test_products.py
run_time_sizes.py: tests/ops/test_dynamic_dimensions.py
small_triangles.py: tests/ops/test_linalg.py
window_position.py: tests/ops/test_windows.py, tests/ops/test_convolution.py
"""
