"""Collectives between hosts.

round_plan.py, scratch_memory.py: test_proxy.py, test_injected_faults.py
"""
