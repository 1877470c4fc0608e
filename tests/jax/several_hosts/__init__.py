"""JAX processes on several hosts.

distxla/jax/processes/machines.py, distxla/jax/processes/keeper.py, distxla/runtime/hosts/users.py,
distxla/runtime/hosts/remote_memory.py.
"""
