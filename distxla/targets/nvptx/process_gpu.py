"""The GPU as this process uses it, for all its programs."""

from __future__ import annotations

from dataclasses import dataclass

from distxla.targets.nvptx.driver.driver import Context
from distxla.targets.nvptx.driver.errors import DriverCallError, DriverError
from distxla.targets.nvptx.exported_blocks import ExportedBlocks


@dataclass
class ProcessGpu:
    """lost: by what, once a kernel's fault has lost the context.  blocks: that other devices may use.
    is_one_of_several: whether devices of the run on this machine may use others."""

    context: Context
    lost: str = ""
    is_one_of_several: bool = False

    def __post_init__(self) -> None:
        self.blocks = ExportedBlocks(self.context)

    def require(self) -> None:
        """DriverError once the context is lost."""
        if self.lost:
            raise DriverError(f"this process lost {self.context.gpu} before ({self.lost}): open the cluster anew")

    def note(self, error: DriverCallError, what: str) -> None:
        """After a failed call: whether the context can be used on is seen by a further one."""
        try:
            self.context.synchronise()
        except DriverError:
            self.lost = f"{what}: {error.name}"


__all__ = ["ProcessGpu"]
