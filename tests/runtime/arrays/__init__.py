"""Arrays on devices.

read_only_array.py: test_device_array.py
"""
