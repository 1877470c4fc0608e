"""The GPU as this process uses it, for all its programs."""

from __future__ import annotations

from distxla.lazy_dataclass import dataclass
from distxla.targets.nvptx.cublas.binding import Cublas
from distxla.targets.nvptx.cublas.choice import open_cublas
from distxla.targets.nvptx.driver.driver import Context
from distxla.targets.nvptx.driver.errors import DriverCallError, DriverError
from distxla.targets.nvptx.exported_blocks import ExportedBlocks


@dataclass
class ProcessGpu:
    """driver: its name.  version: of CUDA, that it supports.  lost: by what, once a kernel's fault has lost the
    context.  blocks: that other devices may use.  is_one_of_several: whether devices of the run on this machine may use
    others."""

    context: Context
    driver: str
    version: tuple[int, int]
    lost: str = ""
    is_one_of_several: bool = False

    def __post_init__(self) -> None:
        self._cublas: dict[str, Cublas] = {}
        self.blocks = ExportedBlocks(self.context)

    def cublas(self) -> Cublas | None:
        """cuBLAS where programs that are loaded now are to use it. Raises as `open_cublas`."""
        found = open_cublas(self.driver, self.version)
        if found is None:
            return None
        library, name = found
        return self._cublas.setdefault(name, Cublas(library, name))

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
