"""JAX's plugin.

calls.py: test_programs.py, test_native_calls.py
native_events.py, native_gate.py, native_module.py: test_native_calls.py, test_table.py
native_launches.py: tests/jax/processes/test_board_calls.py
plans.py: test_native_calls.py
stubs.py: test_table.py
"""
