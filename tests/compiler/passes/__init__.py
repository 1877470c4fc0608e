"""Passes.

build_fusions.py, merge_fusions.py: test_fuse.py
dynamic_computation.py, dynamic_movement.py, dynamic_site.py: tests/ops/test_dynamic_dimensions.py
simplify_arithmetic.py, simplify_data.py: test_simplify.py
"""
