"""Kernels for the emulator as the bytes that `cuModuleLoadDataEx` takes, in place of PTX or a cubin."""

from __future__ import annotations

import ctypes
import pickle
import struct

from distxla.targets.nvptx.emulator.prepared import PreparedModule

MAGIC = b"distxla emulated kernels"
_LENGTH = struct.Struct("<Q")


def packed(prepared: PreparedModule) -> bytes:
    """The kernels as bytes, which know their length."""
    body = pickle.dumps(prepared)
    return MAGIC + _LENGTH.pack(len(body)) + body


def unpacked(address: int) -> PreparedModule | None:
    """The kernels at a host address; None where something else is. Made by this project's compiler, as all code is."""
    if ctypes.string_at(address, len(MAGIC)) != MAGIC:
        return None
    (length,) = _LENGTH.unpack(ctypes.string_at(address + len(MAGIC), _LENGTH.size))
    found = pickle.loads(ctypes.string_at(address + len(MAGIC) + _LENGTH.size, length))
    return found if isinstance(found, PreparedModule) else None
