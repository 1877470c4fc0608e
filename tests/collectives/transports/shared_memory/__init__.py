"""Collectives on one host.

event_recording.py: tests/collectives/test_recorder.py
ragged_work_items.py: test_round_work.py, tests/collectives/test_ragged_all_to_all.py
reduce_tile.py: test_emitter.py, tests/collectives/test_reduction_orders.py
"""
