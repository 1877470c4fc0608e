"""Arrays on devices.

device_cluster.py: tests/jax/pjrt/test_native_calls.py, tests/jax/processes/test_board_calls.py
read_only_array.py: test_device_array.py
"""
