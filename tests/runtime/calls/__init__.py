"""Calls.

failed_call.py: tests/runtime/test_faults.py, tests/runtime/test_custom_calls.py, tests/runtime/streams/test_streams.py
"""
