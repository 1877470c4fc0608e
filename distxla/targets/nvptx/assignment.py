"""Which of a machine's GPUs a device uses: neighbours share one where there are more devices than GPUs."""

from __future__ import annotations

from distxla.targets.local_rank import LocalRank
from distxla.targets.nvptx.driver.errors import DriverError


def ordinals(local: LocalRank, gpus: int) -> list[int]:
    """The GPU of each of the machine's devices, of so many that the process sees. One each if there are enough.

    DriverError where there are too few for `per_gpu`.
    """
    size = local.size
    if local.given or gpus == 0:
        return [0] * size
    if local.per_gpu is None:
        return list(range(size)) if size <= gpus else [rank * gpus // size for rank in range(size)]
    if size > local.per_gpu * gpus:
        found = "1 GPU" if gpus == 1 else f"{gpus} GPUs"
        raise DriverError(f"{size} devices are on this machine, which has {found}, and devices_per_gpu={local.per_gpu}")
    return [rank // local.per_gpu for rank in range(size)]


__all__ = ["ordinals"]
