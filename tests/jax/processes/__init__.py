"""Several JAX processes on one cluster.

facts.py and fields.py are what test_messages.py tests with the frames.
"""
