"""Arguments and results in .npz files: `arg{k}@{d}`, `arg{k}` (the same for all devices), `out{k}@{d}`.

Arrays of global modules may stand there whole, `arg{k}` or `out{k}`: each device then has its shard of them.
k counts leaves in depth-first order; d is a flattened device id. Element types that NumPy lacks stand as unsigned
integers of the same width that hold the bits; 4- and 2-bit types take a byte each.
"""

from __future__ import annotations

import io
import os
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distxla.cli.output_files import is_special
from distxla.errors import ArgumentError
from distxla.ir.element_type import ElementType
from distxla.ir.shape import Shape
from distxla.text.missing_files import unreadable

Array = np.ndarray[Any, Any]
NUMBER = "(0|[1-9][0-9]{0,8})"  # one spelling each: arg00 beside arg0 would leave open which one counts
KEY = re.compile(f"([a-z]+){NUMBER}(?:@{NUMBER})?")


Part = Callable[[int, int, Array], Array]


def read_leaves(
    path: str, prefix: str, shapes: Mapping[int, Sequence[Shape]], part: Part = lambda k, device, array: array
) -> dict[tuple[int, int], Array]:
    """(leaf, device) -> array, for every leaf that the file holds for a device.

    prefix: `arg` or `out`.  shapes: leaf shapes by device.  part: makes a device's array of one that the file holds
    (leaf, device, array).  ArgumentError for a file that is no .npz, and for keys,
    element types and extents that don't fit.
    """
    found: dict[tuple[int, int], Array] = {}
    shared: dict[tuple[int, int], Array] = {}
    for key, array in members(path):
        match = KEY.fullmatch(key)
        if match is None or match[1] != prefix:
            raise ArgumentError(f"{path}: {key!r} is no key; keys are {prefix}0@0, or {prefix}0 for all devices")
        leaf, device = int(match[2]), match[3]
        if device is not None and int(device) not in shapes:
            raise ArgumentError(f"{path} holds {key}, but no program runs on device {device}")
        owners = [int(device)] if device is not None else [d for d, leaves in shapes.items() if leaf < len(leaves)]
        if not owners or leaf >= len(shapes[owners[0]]):
            most = max(len(leaves) for leaves in shapes.values())
            raise ArgumentError(f"{path} holds {key}, but the program has {most} such leaves, from {prefix}0")
        for owner in owners:
            target = found if device is not None else shared
            target[leaf, owner] = from_file(part(leaf, owner, array), shapes[owner][leaf], f"{path}: {key}")
    return shared | found


def from_file(array: Array, shape: Shape, what: str) -> Array:
    """The array as `shape.dtype.dtype`; ArgumentError unless extents and type (or its bit view) fit."""
    element = shape.dtype
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))  # the same values: a file may come from any machine
    if not shape.holds(array.shape):
        raise ArgumentError(f"{what} has extents {list(array.shape)}, the program's are {list(shape.dims)} ({shape})")
    if array.dtype == element.dtype:
        return np.ascontiguousarray(array).reshape(array.shape)
    is_bits = array.dtype == element.file_dtype or (
        element.file_dtype != element.dtype
        and array.dtype.kind in "Vi"
        and array.dtype.itemsize == element.file_dtype.itemsize
    )
    if not is_bits:
        wanted = element.file_dtype.name
        bits = "" if element.file_dtype == element.dtype else f" holding the bits of {element}"
        raise ArgumentError(f"{what} is {array.dtype.name}, the program takes {element}: store it as {wanted}{bits}")
    bits_array = np.ascontiguousarray(array).view(element.file_dtype).reshape(array.shape)
    return _from_bits(bits_array, element)


def to_file(array: Array, element: ElementType) -> Array:
    """How the file holds it: unchanged, or its bits."""
    if element.file_dtype == element.dtype:
        return array
    bits = np.ascontiguousarray(array).view(element.file_dtype).reshape(array.shape)
    return bits & element.file_dtype.type((1 << element.bits) - 1) if element.bits < 8 else bits


def write_results(path: str, leaves: Iterable[tuple[int, int | None, Array, ElementType]]) -> None:
    """Write `out{k}@{d}` for every (k, d, array, element type), `out{k}` where d is None; the file appears whole or not
    at all."""
    write_arrays(
        path, {f"out{k}" if d is None else f"out{k}@{d}": to_file(array, element) for k, d, array, element in leaves}
    )


def write_arrays(path: str, arrays: Mapping[str, Array]) -> None:
    """Write arrays by key; the file appears whole or not at all."""
    target = Path(path)
    if is_special(target):
        content = io.BytesIO()  # a pipe cannot seek
        np.savez(content, allow_pickle=False, **arrays)
        try:
            target.write_bytes(content.getbuffer())
        except OSError as error:
            raise ArgumentError(f"cannot write {path}: {error.strerror}") from error
        return
    target = target.resolve()  # a link stays one
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise ArgumentError(f"cannot write {path}: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, target)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise ArgumentError(f"cannot write {path}: {error.strerror}") from error
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _from_bits(bits: Array, element: ElementType) -> Array:
    """Narrow integers are stored sign-extended by ml_dtypes; files hold them with zeros above."""
    if element.bits >= 8:
        return np.asarray(bits.view(element.dtype))
    low: Array = bits & bits.dtype.type((1 << element.bits) - 1)
    if element.is_integer:
        half = 1 << (element.bits - 1) if element.is_signed else 0
        return np.asarray(((low.astype(np.int8) ^ half) - half).astype(element.dtype))
    return np.asarray(low.view(element.dtype))


def members(path: str) -> Iterable[tuple[str, Array]]:
    """Key and array of all that an .npz file holds; ArgumentError where it is no such file, or damaged."""
    try:
        file = np.load(path, allow_pickle=False)
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ArgumentError(f"{path} is not an .npz file, or it is cut short") from error
    if not isinstance(file, np.lib.npyio.NpzFile):
        raise ArgumentError(f"{path} holds a single array; an .npz file with named arrays is needed")
    with file:
        for key in file.files:
            try:
                array = file[key]
            except Exception as error:  # zipfile, zlib, NumPy and its header's parser have many
                raise ArgumentError(f"{path}: {key!r} cannot be read: the file is damaged, or no array") from error
            if not isinstance(array, np.ndarray):  # NumPy hands out other members of the archive as bytes
                raise ArgumentError(f"{path}: {key!r} is no array")
            yield key, array
