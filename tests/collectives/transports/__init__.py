"""Transports: of one host, and between hosts.

seam.py, an interface: shared_memory/test_emitter.py, tests/targets/nvptx/test_rounds.py
"""
