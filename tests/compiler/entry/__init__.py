"""The entry function.

control_flow.py, function_body.py, kernel_calls.py, sites.py: test_entry.py; tests/collectives/test_divergence.py
watching.py: tests/runtime/test_checked_runs.py
"""
