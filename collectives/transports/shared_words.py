"""Shared words as Python reads and publishes them: by emitted code, with acquire and release order."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from distxla.collectives.protocols.shared_access import PUBLISH, PUBLISH_LONG, READ, READ_LONG
from distxla.compiler.artifact import CompiledProgram
from distxla.targets.registry import load_image

# PYFUNCTYPE: they take nanoseconds, so the interpreter's lock stays with the caller
_READ = ctypes.PYFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)
_PUBLISH = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32)
_READ_LONG = ctypes.PYFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)
_PUBLISH_LONG = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64)


class SharedWords:
    """Words at addresses of this process, aligned.

    read, read_long: the u32 or u64 at an address; all writes before its publication are visible.
    publish, publish_long: store a value at an address, after all earlier writes.
    """

    def __init__(self, program: CompiledProgram) -> None:
        """program: the linked loops of a call (serve.py)."""
        # mapped for this object alone: ends of streams are asked, and answer, after their cluster was closed
        self._image = support = load_image(program)
        self.read: Callable[[int], int] = _READ(support.address_of(READ))
        self.publish: Callable[[int, int], None] = _PUBLISH(support.address_of(PUBLISH))
        self.read_long: Callable[[int], int] = _READ_LONG(support.address_of(READ_LONG))
        self.publish_long: Callable[[int, int], None] = _PUBLISH_LONG(support.address_of(PUBLISH_LONG))

    def __del__(self) -> None:
        if hasattr(self, "_image"):
            self._image.close()
