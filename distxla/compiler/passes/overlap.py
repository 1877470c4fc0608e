"""Let communication overlap with computation, before fusion, which leaves instructions between a pair there."""

from __future__ import annotations

from typing import ClassVar

from distxla.ir.module import Module
from distxla.lazy_dataclass import dataclass
from distxla.rewrites.step import Pass
from distxla.scheduler.computation_order import PAID_BYTES, overlapped


@dataclass(frozen=True)
class Overlap(Pass):
    """Move the instructions of asynchronous pairs apart, so that those between them overlap with communication.

    A scheduled module stays as it is.
    """

    name: ClassVar[str] = "overlap"
    max_bytes: int = PAID_BYTES  # by which the peak of memory may always grow

    def run(self, module: Module) -> Module:
        return overlapped(module, max_bytes=self.max_bytes)
