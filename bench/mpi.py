"""MPI's side: run by mpiexec, one process a member (see peers.py)."""

from __future__ import annotations

import sys

from mpi4py import MPI

from bench.peers import Rounds, floats, serve


def build(collective: str, size: int) -> Rounds | None:
    """One round on NumPy buffers that stay in place."""
    world = MPI.COMM_WORLD
    members, rank = world.size, world.rank
    part = max(4, size // members)
    if collective == "all-reduce":
        sent, received = floats(size), floats(size)
        return lambda: world.Allreduce(sent, received)
    if collective == "all-gather":
        sent, received = floats(part), floats(part * members)
        return lambda: world.Allgather(sent, received)
    if collective == "reduce-scatter":
        sent, received = floats(part * members), floats(part)
        return lambda: world.Reduce_scatter_block(sent, received)
    if collective == "all-to-all":
        sent, received = floats(part * members), floats(part * members)
        return lambda: world.Alltoall(sent, received)
    if collective == "collective-broadcast":
        sent = floats(size)
        return lambda: world.Bcast(sent, 0)
    if collective == "collective-permute":
        sent, received = floats(size), floats(size)
        after, before = (rank + 1) % members, (rank - 1) % members
        return lambda: world.Sendrecv(sent, after, recvbuf=received, source=before)
    return None


if __name__ == "__main__":
    serve(sys.argv[1], MPI.COMM_WORLD.rank, build, MPI.COMM_WORLD.Barrier)
