"""All devices in lock step.

evaluation.py: test_lockstep.py
"""
