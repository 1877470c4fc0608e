"""Devices are followed without a run: the events of each, and how far all get. Entry: scheduler/deadlocks.py."""
