"""Fourier transforms of one axis: the inner loops of NumPy's `numpy.fft` functions, called without Python.

They are C functions `void loop(char** arrays, intp* dimensions, intp* steps, void* data)` that need no
interpreter. NumPy keeps their addresses in its ufunc objects, whose layout is part of its C interface (PyUFuncObject).
"""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

from distxla.errors import CompileError

# by element type of the transform: the types of its operand, of the factor and of its result, in NumPy's letters
_COMPLEX = {"c64": "Ff->F", "c128": "Dd->D"}
_SIGNATURES = {
    "fft": _COMPLEX,
    "ifft": _COMPLEX,
    "rfft_n_even": {"f32": "ff->F", "f64": "dd->D"},
    "rfft_n_odd": {"f32": "ff->F", "f64": "dd->D"},
    "irfft": {"c64": "Ff->f", "c128": "Dd->d"},
}


class _UfuncObject(ctypes.Structure):
    """The beginning of PyUFuncObject (numpy/ufuncobject.h)."""

    _fields_ = (
        ("ob_refcnt", ctypes.c_ssize_t),
        ("ob_type", ctypes.c_void_p),
        ("nin", ctypes.c_int),
        ("nout", ctypes.c_int),
        ("nargs", ctypes.c_int),
        ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int),
        ("reserved1", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("types", ctypes.c_void_p),
    )


def resolve_fft(name: str) -> int:
    """The address of the import `numpy.fft.` and `<function>.<type>.<loop or data>`, the name; data may be 0.

    Raises CompileError where this NumPy has no such loop, or keeps it otherwise than its headers say.
    """
    function, kind, part = name.rsplit(".", 2)
    ufunc, fields = _ufunc(function)
    wanted = _SIGNATURES[function][kind]
    if wanted not in ufunc.types:
        raise CompileError(f"NumPy's {function} has no loop for {wanted}: {_VERSION_HINT}")
    row = ufunc.types.index(wanted)
    if part == "data":
        return (fields.data[row] or 0) if fields.data else 0
    address = fields.functions[row]
    if not address:
        raise CompileError(f"NumPy's {function} has no loop for {wanted}: {_VERSION_HINT}")
    return int(address)


_VERSION_HINT = "Fourier transforms need NumPy 2 as CPython's"


def _ufunc(function: str) -> tuple[Any, _UfuncObject]:
    """The generalised ufunc and its fields, which must agree with the object itself."""
    try:
        transforms = importlib.import_module("numpy.fft._pocketfft_umath")
    except ImportError as error:
        raise CompileError(f"numpy.fft has no transforms to call: {error}; {_VERSION_HINT}") from None
    ufunc = getattr(transforms, function, None)
    if ufunc is None or not str(getattr(ufunc, "signature", "")).startswith(("(n),()->(m)", "(m),()->(n)")):
        raise CompileError(f"NumPy has no transform {function} of one axis: {_VERSION_HINT}")
    fields = _UfuncObject.from_address(id(ufunc))
    stated = (fields.nin, fields.nout, fields.nargs, fields.ntypes)
    if stated != (2, 1, 3, len(ufunc.types)) or fields.name != function.encode() or not fields.functions:
        raise CompileError(f"NumPy keeps its {function} in another way than expected: {_VERSION_HINT}")
    return ufunc, fields
