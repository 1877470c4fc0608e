"""Whether devices that are declared to have the same array do: their bytes are compared, before a call and after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distxla.compiler.passes.manual_partitions import PerDevice
from distxla.compiler.passes.placements import Placements, placements_of, same_devices
from distxla.errors import ReplicationError
from distxla.ir.counts import Counts
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass, replace
from distxla.runtime.arrays.executable import Executable
from distxla.runtime.values.host import DeviceMemory
from distxla.wording import named


@dataclass(frozen=True)
class _Declared:
    """A leaf and devices that should have the same. number: of the leaf."""

    name: str
    shape: Shape
    number: int
    devices: tuple[int, ...]


def require_replicated(executable: Executable, memory: Callable[[int], DeviceMemory], *, results: bool) -> None:
    """ReplicationError for the first argument, or result, that differs between devices that are declared to have the
    same. Blocks; arrays of other hosts are copied here."""
    program, placements = executable.program, known_placements(executable)
    if placements is None:
        return
    first = len(executable.parameters) if results else 0
    leaves = program.result_leaves if results else program.parameter_leaves

    def array(declared: _Declared, device: int) -> NDArray[np.uint8]:
        place = int(executable.call_area[executable.devices.index(device), first + declared.number])
        return memory(device).read(place, declared.shape.byte_size)

    known = program.assignment or range(program.counts.devices)
    for declared in _declared(placements, leaves, program.counts.replicas, results=results):
        devices = tuple(known[id_] for id_ in declared.devices if known[id_] in executable.devices)
        _compare(replace(declared, devices=devices), array)


def known_placements(executable: Executable) -> Placements | None:
    """How its arguments and results are cut, as far as something says so."""
    if executable.placements is None and executable.module is not None:
        partitions = executable.program.counts.partitions
        executable.placements = placements_of(executable.module, partitions, executable.whole)
    return executable.placements


def require_same(
    module: Module,
    whole: PerDevice | None,
    leaves: Mapping[int, Sequence[Any]],
    counts: Counts,
    *,
    results: bool,
) -> None:
    """The same of NumPy arrays by flattened id. module: the program of these devices."""
    entry = module.entry_computation
    shapes = [entry.root_instruction.shape] if results else [p.shape for p in entry.parameters]
    kinds = [leaf for shape in shapes for leaf in shape.leaves()]

    def array(declared: _Declared, device: int) -> NDArray[np.uint8]:
        found = np.ascontiguousarray(leaves[device][declared.number], declared.shape.dtype.dtype)
        return found.reshape(-1).view(np.uint8)

    for declared in _declared(placements_of(module, counts.partitions, whole), kinds, counts.replicas, results=results):
        _compare(replace(declared, devices=tuple(d for d in declared.devices if d in leaves)), array)


def _declared(placements: Placements, leaves: Sequence[Shape], replicas: int, *, results: bool) -> Iterator[_Declared]:
    shards = placements.results if results else placements.parameters
    for number, (shape, placed) in enumerate(zip(leaves, shards)):
        if placed is not None and shape.is_array and not shape.is_dynamic:
            for group in same_devices(placed, replicas):
                yield _Declared(f"{'out' if results else 'arg'}{number}", shape, number, group)


def _compare(declared: _Declared, array: Callable[[_Declared, int], NDArray[np.uint8]]) -> None:
    """Raises without views of device memory among its variables, which the traceback would keep."""
    if len(declared.devices) > 1 and (differing := _differing(declared, array)):
        raise _error(declared, differing, *_first_difference(declared, differing[0], array))


def _differing(declared: _Declared, array: Callable[[_Declared, int], NDArray[np.uint8]]) -> list[int]:
    """Devices that have another array than the first."""
    first, *others = declared.devices
    wanted = array(declared, first)
    return [device for device in others if not np.array_equal(array(declared, device), wanted)]


def _first_difference(
    declared: _Declared, device: int, array: Callable[[_Declared, int], NDArray[np.uint8]]
) -> tuple[int, bytes, bytes]:
    """Number of the first element that differs; its bytes on that device, and on the first one."""
    size = declared.shape.dtype.byte_size
    wanted, found = array(declared, declared.devices[0]), array(declared, device)
    number = int(np.flatnonzero(wanted != found)[0]) // size
    there, here = (side[number * size :][:size].tobytes() for side in (found, wanted))
    return number, there, here


def _error(declared: _Declared, differing: Sequence[int], number: int, there: bytes, here: bytes) -> ReplicationError:
    index, difference = difference_text(declared.shape, number, (differing[0], there), (declared.devices[0], here))
    error = ReplicationError(
        f"{declared.name} is declared the same on {named(declared.devices)}; "
        f"{named(differing)} {'has' if len(differing) == 1 else 'have'} another: {difference}"
    )
    error.array, error.devices, error.differing = declared.name, declared.devices, tuple(differing)
    error.index = index
    return error


def difference_text(
    shape: Shape, number: int, there: tuple[int, bytes], here: tuple[int, bytes]
) -> tuple[tuple[int, ...], str]:
    """The index of an element, and its values in words. number: of the element.  there, here: devices, and its bytes on
    them."""
    index = tuple(int(i) for i in np.unravel_index(number, shape.dims)) if shape.dims else ()
    values = [str(np.frombuffer(bits, shape.dtype.dtype)[0]) for _, bits in (there, here)]
    told = f"element {list(index)}" if index else "it"
    text = f"{told} is {values[0]} on device {there[0]}, {values[1]} on device {here[0]}"
    if values[0] == values[1]:
        text += f" (bits {there[1][::-1].hex()} and {here[1][::-1].hex()})"
    return index, text
