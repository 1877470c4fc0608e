"""The order of one program: candidates, their memory, asynchronous pairs drawn apart. Entry:
scheduler/computation_order.py."""
