"""The order of execution, and whether all devices can end.

device_states.py: test_deadlocks.py
execution_counts.py: test_communication_table.py
uniformity.py: test_replication.py
joint_order/conflicts.py, joint_order/merged_order.py, joint_order/reordering.py: test_communication_order.py
simulation/blocked_devices.py: test_communication_order.py, test_deadlocks.py
simulation/communication.py, simulation/deferred.py, simulation/progress.py: test_deadlocks.py, test_random_deadlocks.py
simulation/counted_loops.py, simulation/loop_state.py: test_deadlocks.py, test_communication_table.py
simulation/symmetry.py, simulation/traces.py, simulation/tracing.py: test_deadlocks.py, test_random_deadlocks.py
"""
