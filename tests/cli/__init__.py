"""Commands.

check.py: test_main.py, test_check_deadlocks.py, test_joint_order.py, test_communication.py
compile.py: test_main.py
execution.py, nodes.py: test_cluster_runs.py
"""
