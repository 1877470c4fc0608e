"""gloo's side, through torch.distributed: one process a member (see peers.py)."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from bench.peers import Rounds, floats, serve


def _tensor(size: int) -> Any:
    return torch.from_numpy(floats(size))


def build(collective: str, size: int) -> Rounds | None:
    """One round on tensors that stay in place."""
    members, rank = dist.get_world_size(), dist.get_rank()
    part = max(4, size // members)
    if collective == "all-reduce":
        whole = _tensor(size)
        return lambda: dist.all_reduce(whole)
    if collective == "all-gather":
        sent, parts = _tensor(part), [_tensor(part) for _ in range(members)]
        return lambda: dist.all_gather(parts, sent)
    if collective == "reduce-scatter":
        parts, received = [_tensor(part) for _ in range(members)], _tensor(part)
        return lambda: dist.reduce_scatter(received, parts)
    if collective == "all-to-all":
        sent, received = _tensor(part * members), _tensor(part * members)
        return lambda: dist.all_to_all_single(received, sent)
    if collective == "collective-broadcast":
        whole = _tensor(size)
        return lambda: dist.broadcast(whole, 0)
    if collective == "collective-permute":
        sent, received = _tensor(size), _tensor(size)

        def permute() -> None:
            waits = [dist.isend(sent, (rank + 1) % members), dist.irecv(received, (rank - 1) % members)]
            for wait in waits:
                wait.wait()

        return permute
    return None


def main(place: str, rank: int, members: int) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(f"{place}.store", members)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=members, timeout=timedelta(seconds=120))
    serve(place, rank, build, dist.barrier)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
