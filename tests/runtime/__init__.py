"""A run.

leftovers.py: tests/testing/test_plugin.py
checks/non_finite.py, checks/replication.py: test_checked_runs.py
replica/user_functions.py: test_custom_calls.py
"""
