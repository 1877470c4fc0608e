"""Which of a run's processes on its machine a process is: what tells its accelerator from the others'."""

from __future__ import annotations

from typing import NamedTuple


class LocalRank(NamedTuple):
    """Of a device among those of its run on its machine.

    rank, size: the rank-th of so many, from 0.  per_gpu: how many devices a GPU takes at most; None: any number.
    given: the process sees the GPU that Ray gave it, and no other.
    """

    rank: int = 0
    size: int = 1
    per_gpu: int | None = None
    given: bool = False


ALONE = LocalRank()  # a process by itself
