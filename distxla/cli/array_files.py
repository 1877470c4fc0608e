"""Arguments and results in .npz files: `arg{k}@{d}`, `arg{k}` (the same for all devices), `out{k}@{d}`.

Arrays of global modules may be there whole, `arg{k}` or `out{k}`: each device then has its shard of them.
k counts leaves in depth-first order; d is a flattened device id. Element types that NumPy lacks are stored as unsigned
integers of the same width that hold the bits; 4- and 2-bit types take a byte each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from distxla.cli.npz import Archive, no_key
from distxla.cli.output_files import written_whole
from distxla.errors import ArgumentError
from distxla.ir.element_type import ElementType
from distxla.ir.shape import Shape

Array = np.ndarray[Any, Any]
NUMBER = "(0|[1-9][0-9]{0,8})"  # one spelling each: arg00 beside arg0 would leave open which one counts
KEY = re.compile(f"([a-z]+){NUMBER}(?:@{NUMBER})?")


Part = Callable[[int, int, Array], Array]
Chosen = Callable[[Sequence[str]], Sequence[str]]


def read_leaves(
    path: str,
    prefix: str,
    shapes: Mapping[int, Sequence[Shape]],
    part: Part = lambda k, device, array: array,
    chosen: Chosen = lambda keys: keys,
) -> dict[tuple[int, int], Array]:
    """(leaf, device) -> array, for every leaf that the file holds for a device.

    prefix: `arg` or `out`.  shapes: leaf shapes by device.  part: makes a device's array of one that the file holds
    (leaf, device, array).  chosen: the keys that are read, of all that the file holds.  ArgumentError for a file that
    is no .npz, and for keys, element types and dimension sizes that don't fit: then only headers were read.
    """
    found: dict[tuple[int, int], Array] = {}
    shared: dict[tuple[int, int], Array] = {}
    with Archive(path) as archive:
        keys = set(chosen([member.key for member in archive.members]))
        members = [member for member in archive.members if member.key in keys]
        owners = {member.key: _owners(path, prefix, member.key, shapes) for member in members}
        for member in members:  # all of them are checked before the first one is read
            leaf, devices, _ = owners[member.key]
            for device in devices:
                require_fit(part(leaf, device, member.stand_in), shapes[device][leaf], f"{path}: {member.key}")
        archive.require_memory()
        for member in members:
            leaf, devices, is_shared = owners[member.key]
            target = shared if is_shared else found
            for device in devices:
                target[leaf, device] = from_file(part(leaf, device, member.array), shapes[device][leaf])
    return shared | found


def _owners(path: str, prefix: str, key: str, shapes: Mapping[int, Sequence[Shape]]) -> tuple[int, Sequence[int], bool]:
    """(leaf, its devices, whether one array is for all of them) that a key names."""
    match = KEY.fullmatch(key)
    if match is None or match[1] != prefix:
        raise no_key(path, key, prefix, f"{prefix}0")
    leaf, device = int(match[2]), match[3]
    if device is not None and int(device) not in shapes:
        raise ArgumentError(f"{path} holds {key}, but no program runs on device {device}")
    owners = [int(device)] if device is not None else [d for d, leaves in shapes.items() if leaf < len(leaves)]
    if not owners or leaf >= len(shapes[owners[0]]):
        most = max(len(leaves) for leaves in shapes.values())
        raise ArgumentError(f"{path} holds {key}, but the program has {most} such leaves, from {prefix}0")
    return leaf, owners, device is None


def require_fit(array: Array, shape: Shape, what: str) -> None:
    """ArgumentError unless dimension sizes and type (or its bit view) fit; reads no value."""
    element = shape.dtype
    if not shape.holds(array.shape):
        raise ArgumentError(f"{what} has sizes {list(array.shape)}, the program's are {list(shape.dims)} ({shape})")
    if not _is_value(array.dtype, element) and not _is_bits(array.dtype, element):
        wanted = element.file_dtype.name
        bits = "" if element.file_dtype == element.dtype else f" holding the bits of {element}"
        raise ArgumentError(f"{what} is {array.dtype.name}, the program takes {element}: store it as {wanted}{bits}")


def _is_value(dtype: np.dtype[Any], element: ElementType) -> bool:
    return dtype.newbyteorder("=") == element.dtype


def _is_bits(dtype: np.dtype[Any], element: ElementType) -> bool:
    """Whether a file may hold the element type's bits as this dtype."""
    stored, dtype = element.file_dtype, dtype.newbyteorder("=")
    return dtype == stored or (stored != element.dtype and dtype.kind in "Vi" and dtype.itemsize == stored.itemsize)


def from_file(array: Array, shape: Shape) -> Array:
    """The array, which fits (`require_fit`), as `shape.dtype.dtype`."""
    element = shape.dtype
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))  # the same values: a file may come from any machine
    if _is_value(array.dtype, element):
        return np.ascontiguousarray(array).reshape(array.shape)
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
    with written_whole(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def _from_bits(bits: Array, element: ElementType) -> Array:
    """Narrow integers are stored sign-extended by ml_dtypes; files hold them with zeros above."""
    if element.bits >= 8:
        return np.asarray(bits.view(element.dtype))
    low: Array = bits & bits.dtype.type((1 << element.bits) - 1)
    if element.is_integer:
        half = 1 << (element.bits - 1) if element.is_signed else 0
        return np.asarray(((low.astype(np.int8) ^ half) - half).astype(element.dtype))
    return np.asarray(low.view(element.dtype))
