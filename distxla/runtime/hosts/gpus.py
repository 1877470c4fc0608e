"""How the devices of a run share the GPUs of its nodes."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from distxla.errors import ArgumentError, ClusterError
from distxla.lazy_dataclass import dataclass
from distxla.runtime.hosts.nodes import Node
from distxla.targets.local_rank import LocalRank
from distxla.targets.registry import target_named

STEPS = 10_000  # Ray counts shares of a GPU in so many parts


@dataclass(frozen=True)
class GpuSharing:
    """used: whether the devices use GPUs.  per_gpu: how many of them a GPU takes at most; None: any number."""

    used: bool = False
    per_gpu: int | None = None

    def rooms(self, nodes: Sequence[Node]) -> list[float]:
        """For how many devices each node has CPUs, or GPUs where Ray counts any."""
        if not self.used or not any(int(node.gpus) for node in nodes):
            return [node.cpus for node in nodes]
        if self.per_gpu is None:
            return [node.cpus if int(node.gpus) else 0 for node in nodes]
        return [int(node.gpus) * self.per_gpu for node in nodes]

    def share(self, node: Node, devices: int) -> float:
        """How much of a GPU each of so many devices takes there, of those that Ray counts: 0 where it counts none.

        ClusterError where the node has too few.
        """
        per_gpu = self._on_each(node, devices)
        return STEPS // per_gpu / STEPS if per_gpu else 0.0

    def _on_each(self, node: Node, devices: int) -> int:
        """The most of the devices that a GPU takes, of those that Ray counts; 0 where it counts none."""
        gpus = int(node.gpus)
        if not self.used or not gpus or not devices:
            return 0
        per_gpu = self.per_gpu or -(-devices // gpus)
        if devices > per_gpu * gpus:
            raise ClusterError(
                f"{node.name} has {gpus} GPU{'s' if gpus > 1 else ''} for {devices} devices, "
                f"and devices_per_gpu={per_gpu}"
            )
        return per_gpu

    def ranks(self, node: Node, devices: int) -> list[LocalRank]:
        """What each of the node's devices is to know."""
        if per_gpu := self._on_each(node, devices):
            return [LocalRank(per_gpu=per_gpu, given=True)] * devices
        return [LocalRank(rank, devices, self.per_gpu) for rank in range(devices)]


NO_GPUS = GpuSharing()


def gpu_sharing(target: str, devices_per_gpu: int | None) -> GpuSharing:
    """Of the devices of a target; ArgumentError for a number that can't be, and where no GPU is used."""
    used = target_named(target).uses_gpus
    if devices_per_gpu is None:
        return GpuSharing(used)
    try:
        per_gpu = operator.index(devices_per_gpu)
    except TypeError as error:
        raise ArgumentError(f"devices_per_gpu: expected a number of devices, found {devices_per_gpu!r}") from error
    if per_gpu < 1:
        raise ArgumentError(f"devices_per_gpu: expected a number of devices above 0, found {per_gpu}")
    if not used:
        raise ArgumentError(f"devices_per_gpu={per_gpu} needs a backend that uses GPUs")
    return GpuSharing(used, per_gpu)


__all__ = ["NO_GPUS", "GpuSharing", "gpu_sharing"]
