"""Several JAX processes on one cluster.

facts.py and fields.py are what test_messages.py tests with the frames.
test_owner.py is about owned_calls.py, owned_cluster.py and owned_programs.py, too; test_spawn.py is
about owner_process.py.
"""
