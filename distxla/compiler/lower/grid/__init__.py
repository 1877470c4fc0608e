"""Kernels that run on a grid of threads: the same ops as lower/kernels.py, for targets such as GPUs.

A kernel becomes one or more launches, one after the other: a launch ends when all its threads have ended, so it is the
barrier between loops that depend on each other. Nests of independent iterations spread them over all threads; what is
in no such nest is run by one thread. `grid_emitter.py` decides about that, ops need not know.
"""
