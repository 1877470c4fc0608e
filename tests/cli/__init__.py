"""Commands.

compile.py: test_main.py
execution.py, nodes.py: test_cluster_runs.py
"""
