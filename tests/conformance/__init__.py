"""The kit for other implementations.

all_reduce.py, asynchronous.py, channels.py, movement.py, values.py: test_suite.py
"""
