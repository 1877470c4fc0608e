"""Targets that programs run on: one folder each (see target.py)."""
