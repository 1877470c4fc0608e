"""The order of one program: candidates, their memory, asynchronous pairs moved apart. Entry:
scheduler/computation_order.py."""
