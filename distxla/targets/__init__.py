"""Processors that programs run on; one folder a processor."""
