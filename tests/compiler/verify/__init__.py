"""The verifier.

buffer_types.py: tests/ops/test_buffers.py
transfer_contexts.py: test_verify_contexts.py
"""
