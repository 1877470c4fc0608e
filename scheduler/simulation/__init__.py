"""Devices followed without a run: what each comes to, and how far all get. Entry: scheduler/deadlocks.py."""
