"""Targets, and their interfaces.

grid.py, grid_calls.py, interfaces: nvptx/test_programs.py (of the one target that has them)
interpreted/kernels.py: test_interpreted.py
native/link.py: test_link.py
"""
