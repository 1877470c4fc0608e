"""The kit for other implementations.

all_reduce.py, asynchronous.py, movement.py, transfers.py, values.py: test_suite.py
"""
