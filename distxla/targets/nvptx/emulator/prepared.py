"""A device module that was compiled for this machine's processor. Light, and pickled between processes."""

from __future__ import annotations

from distxla.lazy_dataclass import dataclass
from distxla.program.image import Image


@dataclass(frozen=True)
class PreparedKernel:
    """parameters: their LLVM types.  waits: at a barrier or in an operation of warps, so its threads are fibers."""

    name: str
    parameters: tuple[str, ...]
    waits: bool


@dataclass(frozen=True)
class SharedArray:
    """dynamic: its bytes are given at launch, and are `bytes` at most."""

    symbol: str
    bytes: int
    dynamic: bool


@dataclass(frozen=True)
class Constant:
    """A constant, or a variable of the module."""

    symbol: str
    bytes: int
    writable: bool


@dataclass(frozen=True)
class PreparedModule:
    """target: by name, of the image.  sites: (function, instruction) that a fault can be at.  granule: bytes in which
    races are looked for; 0: they aren't.  checked: whether accesses to memory are."""

    image: Image
    target: str
    kernels: dict[str, PreparedKernel]
    shared: tuple[SharedArray, ...]
    constants: tuple[Constant, ...]
    sites: tuple[tuple[str, str], ...]
    checked: bool
    granule: int
