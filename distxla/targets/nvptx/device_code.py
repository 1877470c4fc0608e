"""A program's kernels as a driver loads them. Light, and pickled between processes."""

from __future__ import annotations

from distxla.lazy_dataclass import dataclass, field


@dataclass(frozen=True)
class DeviceCode:
    """driver: by name (driver/choice.py).  architecture: the least whose GPUs can run them.  code: PTX, or of the
    emulated driver its own form.  cubin: the PTX as it was assembled where that could be; GPUs of the architecture's
    generation take it."""

    driver: str
    architecture: str
    code: bytes = field(repr=False)
    cubin: bytes = field(default=b"", repr=False)
