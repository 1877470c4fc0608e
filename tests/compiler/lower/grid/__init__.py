"""Kernels for a grid of threads.

block_of_threads.py, line_reductions.py: test_reductions.py, test_orders.py
grid_loops.py, kernel.py: test_scatters.py, test_ops.py, test_shapes.py
rounds.py: tests/targets/nvptx/test_rounds.py
tiles.py: test_products.py
"""
