"""Groups, channels, what devices record, transports.

signature.py: tests/scheduler/test_deadlocks.py, tests/diagnosis/test_hints.py
"""
