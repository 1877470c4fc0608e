"""The programs of a run, without one.

reference_run.py, watch.py: test_reference.py
"""
