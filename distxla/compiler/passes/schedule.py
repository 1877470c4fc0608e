"""Put every computation's instructions into the order in which a device executes them."""

from __future__ import annotations

from typing import ClassVar

from distxla.ir.module import Module
from distxla.lazy_dataclass import dataclass
from distxla.rewrites.step import Pass
from distxla.scheduler.computation_order import PAID_BYTES, overlapped, schedule


@dataclass(frozen=True)
class Overlap(Pass):
    """Move the instructions of asynchronous pairs apart, so that those between them overlap with communication.

    Stands before fusion, which leaves instructions between a pair there. A scheduled module stays as it is.
    """

    name: ClassVar[str] = "overlap"
    max_bytes: int = PAID_BYTES  # by which the peak of memory may always grow

    def run(self, module: Module) -> Module:
        return overlapped(module, max_bytes=self.max_bytes)


@dataclass(frozen=True)
class Schedule(Pass):
    """Choose the order of execution: little memory first, then much overlap. A scheduled module keeps its order.

    Ensures: is_scheduled.
    """

    name: ClassVar[str] = "schedule"
    max_bytes: int = PAID_BYTES  # by which the peak of memory may always grow for more overlap

    def run(self, module: Module) -> Module:
        return schedule(module, max_bytes=self.max_bytes)
