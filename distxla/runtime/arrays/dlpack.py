"""DLPack capsules of NumPy arrays, of element types that NumPy does not export, too.

NumPy makes the capsule, of integers that hold the bits, and owns it; here only the type that it states is replaced. The
structures are those of dlpack.h: `DLManagedTensor`, and `DLManagedTensorVersioned` from version 1.0 on.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from numpy.typing import NDArray

from distxla.ir.element_type import ElementType

CPU_DEVICE: Final = (1, 0)  # kDLCPU
Capsule = Any  # PyCapsule has no name in Python before 3.13

# DLDataTypeCode of the element types that NumPy does not export, and the version of DLPack that has it
_CODES: Final[dict[str, tuple[int, tuple[int, int]]]] = {
    "bf16": (4, (0, 4)),
    "f8e3m4": (7, (1, 1)),
    "f8e4m3": (8, (1, 1)),
    "f8e4m3b11fnuz": (9, (1, 1)),
    "f8e4m3fn": (10, (1, 1)),
    "f8e4m3fnuz": (11, (1, 1)),
    "f8e5m2": (12, (1, 1)),
    "f8e5m2fnuz": (13, (1, 1)),
    "f8e8m0fnu": (14, (1, 1)),
}


class _Version(ctypes.Structure):
    _fields_ = (("major", ctypes.c_uint32), ("minor", ctypes.c_uint32))


class Tensor(ctypes.Structure):
    """DLTensor up to its type."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


class VersionedTensor(ctypes.Structure):
    _fields_ = (
        ("version", _Version),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )


pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def exported(array: NDArray[Any], element: ElementType, max_version: tuple[int, int] | None) -> Capsule:
    """A capsule of the array in the newest version that the consumer knows; it keeps the array alive.

    BufferError for element types that DLPack, or the consumer's version of it, does not have, or packs otherwise.
    """
    if element.dtype.isbuiltin == 1:
        return array.__dlpack__(max_version=max_version)
    code, since = _CODES.get(element.name, (0, (0, 0)))
    known = max_version or (0, 8)
    if not code or known < since:
        reason = f"begins with version {'.'.join(map(str, since))}" if code else "packs its values otherwise"
        raise BufferError(f"{element.name} cannot be given by DLPack: for this type it {reason}; store its bits")
    capsule = array.view(element.file_dtype).__dlpack__(max_version=max_version)
    if known[0] >= 1:
        versioned = VersionedTensor.from_address(pointer_of(capsule, b"dltensor_versioned"))
        versioned.version.minor = max(versioned.version.minor, since[1] if since[0] == 1 else 0)
        tensor = versioned.tensor
    else:
        tensor = Tensor.from_address(pointer_of(capsule, b"dltensor"))
    tensor.code, tensor.bits = code, element.bits
    return capsule


__all__ = ["CPU_DEVICE", "Capsule", "exported"]
