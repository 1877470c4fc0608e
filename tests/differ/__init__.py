"""Where a sharded program's values first leave the unsharded ones.

alignment.py, ancestry.py, causes.py, recording.py: test_comparison.py
"""
