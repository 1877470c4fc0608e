"""Collectives between hosts.

round_across_hosts.py: tests/collectives/transports/test_conformance.py (rounds of every size), test_proxy.py
round_plan.py, scratch_memory.py: test_proxy.py, test_injected_faults.py
"""
