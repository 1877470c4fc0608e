"""Modules, instructions, shapes.

attribute.py: tests/text/test_round_trip.py, tests/cli/test_op_documentation.py
"""
