"""A program that is loaded on its devices, and the calls of it."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from distxla.compiler.passes.whole_arguments import given_whole
from distxla.errors import ArgumentError
from distxla.ir.element_type import S32, element_type_of, held_number
from distxla.ir.shape import Shape
from distxla.machine.heap import Block
from distxla.program.abi import ALIGNMENT
from distxla.program.artifact import CompiledProgram
from distxla.runtime.arrays.device_array import DeviceArray
from distxla.runtime.values.handle import Handle
from distxla.wording import named

if TYPE_CHECKING:
    from distxla.compiler.passes.manual_partitions import PerDevice
    from distxla.compiler.passes.placements import Placements
    from distxla.errors import ReplicationError
    from distxla.ir.module import Module
    from distxla.machine.heap import Heap
    from distxla.ops.custom_calls.user import UserTarget
    from distxla.runtime.arrays.host_calls import BoundHostCall
    from distxla.runtime.values.host import DeviceMemory

Row = list[DeviceArray]


class Devices(Protocol):
    """The parts of a cluster that its executables use."""

    heap: Heap

    def memory(self, device: int) -> DeviceMemory:
        """A device's memory as the driver sees it."""

    def call(
        self,
        calls: list[tuple[Executable, list[Sequence[Any]]]],
        *,
        time_limit: float | None = None,
        repeat: int = 1,
    ) -> list[list[Row]]:
        """Run executables at once, each with its rows of arguments by device."""


_SHOWN = 6  # leaves in a repr


def aligned(size: int) -> int:
    """Bytes of a buffer, and of what is left until the next one may begin."""
    return max(ALIGNMENT, (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT)


class ValuesOfCall(Protocol):
    """Values that devices give to the driver in a call, which should be the same (runtime/checks)."""

    def begin(self) -> None: ...

    def error(self, placements: Placements | None) -> ReplicationError | None: ...


class Executable(Handle):
    """The result of `Cluster.compile`; call it with arguments.

    devices: flattened ids that run it.  compile_s, cached: how long compiling took, and whether the program came from
    the cache on disk.  load_s: seconds to load it on the replicas.  run_s, device_s: seconds of the last call, from the
    driver's command to the last device's completion, and on each device.  module: the compiled one, None where only
    the program is known.  targets: the user's custom-calls in it, as they were registered then.
    whole: the global arrays of a global module, else None.  traced: whether its steps can be seen in traces.
    placements: how arguments and results are cut, for the check of replication; None before someone says so.
    checks: names of those that each call is checked by (runtime/checks/checks.py).
    host_calls: the functions of the driver that it calls, by number.  same_values: what compares values inside that are
    declared the same; None without such values, and where it isn't checked for that.
    serial: tells it from all others.  together: of calls in which it is the first of several, by all their serials,
    the executables that run in their places; None for those that stay.
    """

    _serials = itertools.count()
    _INTERNAL = frozenset(
        {
            "arena",
            "again",
            "arity",
            "call_area",
            "host_calls",
            "image_bytes",
            "keep_together",
            "number",
            "place_arguments",
            "place_results",
            "placements",
            "program",
            "same_values",
            "serial",
            "shared",
            "targets",
            "together",
            "whole",
        }
    )

    def __init__(
        self,
        cluster: Devices,
        program: CompiledProgram,
        devices: tuple[int, ...],
        compile_s: float,
        cached: bool,
        *,
        module: Module | None = None,
        targets: tuple[UserTarget, ...] = (),
        whole: PerDevice | None = None,
        traced: bool = False,
        checks: frozenset[str] = frozenset(),
    ) -> None:
        self._cluster = cluster
        self.checks = checks
        self.placements: Placements | None = None
        self.module = module
        self.targets = targets
        self.whole = whole
        self.traced = traced
        self.host_calls: tuple[BoundHostCall, ...] = ()
        self.same_values: ValuesOfCall | None = None
        self.serial = next(self._serials)
        self.together: dict[tuple[int, ...], list[Executable | None]] = {}
        self._others: dict[tuple[int, ...], list[weakref.ref[Executable]]] = {}
        self.program = program
        self.devices = devices
        self.compile_s = compile_s
        self.cached = cached
        self.load_s = 0.0
        self.run_s = 0.0
        self.device_s: list[float] = []
        self.number: int | None = None
        self.arena: Block | None = None
        self.shared: list[dict[int, Block]] = []  # where each shared arena is, by device
        # behind the leaves are the sizes of dynamic dimensions
        dimension_size = Shape(S32)
        self.arity = len(program.parameter_leaves)
        self.parameters = (
            *(leaf.without_layout() for leaf in program.parameter_leaves),
            *(dimension_size for _ in program.parameter_sizes),
        )
        self.results = (
            *(leaf.without_layout() for leaf in program.result_leaves),
            *(dimension_size for _ in program.result_sizes),
        )
        self._bytes = [leaf.byte_size for leaf in self.parameters]
        places = np.cumsum([0, *(aligned(leaf.byte_size) for leaf in self.results)])
        self._result_places: list[int] = [int(place) for place in places[:-1]]
        self._result_bytes = int(places[-1])
        self._result_offsets = places[:-1].astype(np.uint64)
        self.call_area: NDArray[np.uint64] = np.empty((0, 0), np.uint64)

    def __call__(self, args: Sequence[Any] = (), *, time_limit: float | None = None, repeat: int = 1) -> list[Row]:
        """Run on all devices; outs[i][k] is leaf k of the result on devices[i], and stays there.

        args: args[i][k] for leaf k of the parameters on devices[i] (inner lists or tuples), or one flat sequence that
        is the same for all devices. NumPy arrays (or what np.asarray takes) are copied to the device, DeviceArrays are
        used where they are. An array argument of a global module may be given whole: each device takes its shard.
        time_limit: seconds.  repeat: runs of the program within this one call.  Blocks until all devices are done.
        Raises ArgumentError, TimeLimitError, ReplicaLostError, CollectiveMismatchError, ExecutionError.
        """
        outs = self._cluster.call([(self, rows_of(args, self.devices))], time_limit=time_limit, repeat=repeat)
        return outs[0]

    @property
    def image_bytes(self) -> int:
        """Bytes of its machine code."""
        return len(self.program.image.data)

    def again(self, program: CompiledProgram, module: Module, compile_s: float, cached: bool) -> Executable:
        """The same, of a module whose instructions have another order."""
        found = Executable(
            self._cluster,
            program,
            self.devices,
            compile_s,
            cached,
            module=module,
            targets=self.targets,
            whole=self.whole,
            traced=self.traced,
            checks=self.checks,
        )
        found.host_calls, found.same_values = self.host_calls, self.same_values
        found.placements = self.placements
        return found

    def keep_together(self, key: tuple[int, ...], others: Iterable[Executable], found: list[Executable | None]) -> None:
        """Note the executables that run in the places of this one and others, until one of these is deleted."""
        first = weakref.ref(self)

        def forget(_: object) -> None:
            kept = first()
            if kept is not None:
                kept.together.pop(key, None)
                kept._others.pop(key, None)

        self.together[key] = found
        self._others[key] = [weakref.ref(other, forget) for other in others]

    def place_arguments(self, rows: list[Sequence[Any]]) -> list[Any]:
        """Write the offsets of all arguments into the call area, copying those that are not on their device.

        Returns objects that must live until the call is over.
        """
        count, sizes = len(self.parameters), self.program.parameter_sizes
        offsets: list[list[int]] = []
        copied: dict[int, Block] = {}  # one block an argument: the same offset on every device
        for row, device in zip(rows, self.devices, strict=True):
            if len(row) != self.arity:
                raise ArgumentError(
                    f"arguments on device {device}: expected {self.arity} for {self.program.name}, found {len(row)}"
                )
            if sizes:
                row = [
                    *row,
                    *(np.int32(_dimension_sizes(row[k])[d]) for k, d in sizes if _has_dimension(row[k], k, d, device)),
                ]
            memory = self._cluster.memory(device)
            line = []
            for k, (value, shape) in enumerate(zip(row, self.parameters, strict=True)):
                if type(value) is DeviceArray:
                    value.settle()
                    if value.is_placed(memory, shape):
                        line.append(value.offset)
                        continue
                if type(value) is DeviceArray and value.is_in(memory) and _lies_otherwise(value, shape):
                    value = np.asarray(value)
                if type(value) is DeviceArray:
                    if not value.is_in(memory) or (value.hlo_shape is not shape and not _fits(value, shape)):
                        self._refuse(value, k, device, shape)
                    line.append(value.offset)
                    continue
                if self.whole is not None and k < self.arity:
                    value = self._shard(value, k, device)
                try:
                    array = as_argument(value, shape, k, device)
                except ArgumentError as error:
                    self._explain(error, value, k)
                    raise
                block = copied.get(k)
                if block is None:
                    block = copied[k] = self._cluster.heap.allocate(self._bytes[k], self.devices)
                memory.write(block.offset, array)
                line.append(block.offset)
            offsets.append(line)
        if count:
            self.call_area[:, :count] = offsets
        return list(copied.values())

    def _explain(self, error: ArgumentError, value: Any, k: int) -> None:
        """Add how to cut an argument that was given whole."""
        if self.module is None or k >= self.arity:
            return
        hint = given_whole(self.module, self.program.counts.partitions, k, np.shape(value), lambda d: f"args[{d}][{k}]")
        if hint is not None:
            error.add_note(f"hint: {hint}")

    def _shard(self, value: Any, k: int, device: int) -> Any:
        """The device's part of an argument that is given whole."""
        assert self.whole is not None
        placed = self.whole.parameters[k]
        array = np.asarray(value) if not isinstance(value, bool | int | float | complex) else None
        if array is None or not placed.is_whole(array.shape):
            return value
        return placed.shards.split(array, self.program.logical(device) % self.program.counts.partitions)

    def join(self, outs: Sequence[Sequence[Any]], replica: int = 0) -> list[NDArray[Any]]:
        """The results of a global module as whole arrays, by leaf, as its shardings say.

        outs: the results of a call.  replica: its number.  Blocks while shards are fetched. ArgumentError for a module
        is not global, and where not all partitions have run it.
        """
        if self.whole is None:
            raise ArgumentError(f"{self.program.name} is no global module: its results are no parts of others")
        partitions = self.program.counts.partitions
        ids = range(replica * partitions, (replica + 1) * partitions)
        assignment = self.program.assignment
        if assignment is None:
            wanted: Sequence[int] = ids
        elif ids.stop > len(assignment) or replica < 0:
            raise ArgumentError(f"replica {replica}: the program has replicas 0 to {self.program.counts.replicas - 1}")
        else:
            wanted = [assignment[id_] for id_ in ids]
        if not set(wanted) <= set(self.devices):
            raise ArgumentError(f"joining needs the results of the devices {ids.start} to {ids.stop - 1}")
        rows = [outs[self.devices.index(device)] for device in wanted]
        return [
            np.asarray(placed.shards.join([np.asarray(row[k]) for row in rows]))
            for k, placed in enumerate(self.whole.results)
        ]

    def _refuse(self, value: DeviceArray, k: int, device: int, shape: Shape) -> None:
        """Describe the error of an argument that is on a device."""
        where = f"argument {k} on device {device}"
        if not _fits(value, shape):
            found = Shape(value.hlo_shape.element_type, value.shape) if value.hlo_shape.is_array else value.hlo_shape
            raise ArgumentError(f"{where}: expected {shape}, found {found}")
        if value.device != device:
            raise ArgumentError(f"{where}: expected an array on device {device}, found one on device {value.device}")
        raise ArgumentError(f"{where}: expected an array of this cluster, found one of another cluster")

    def place_results(self) -> list[Row]:
        """Allocate the result leaves, the same place on every device, and write their offsets into the call area."""
        if not self.results:
            return [[] for _ in self.devices]
        block = self._cluster.heap.allocate(self._result_bytes, self.devices)
        begin = block.offset
        self.call_area[:, len(self.parameters) :] = self._result_offsets + np.uint64(begin)
        places = [begin + place for place in self._result_places]
        count = len(self.program.result_leaves)
        sizes: dict[int, tuple[tuple[int, int], ...]] = {}
        for place, (k, d) in zip(places[count:], self.program.result_sizes, strict=True):
            sizes[k] = (*sizes.get(k, ()), (d, place))
        leaves = [(places[k], self.results[k], sizes.get(k, ())) for k in range(count)]
        return [
            [
                DeviceArray(memory, block, offset, device, shape, dimension_sizes)
                for offset, shape, dimension_sizes in leaves
            ]
            for device, memory in ((d, self._cluster.memory(d)) for d in self.devices)
        ]

    def __repr__(self) -> str:
        takes, gives = (_listed(shapes) for shapes in (self.program.parameter_leaves, self.program.result_leaves))
        return f"Executable({self.program.name} on {named(self.devices)}: ({takes}) -> ({gives}))"


def _listed(shapes: Sequence[Shape]) -> str:
    """`f32[2], s32[]`; of many leaves the first, and how many there are."""
    shown = [str(shape.without_layout()) for shape in shapes[:_SHOWN]]
    return ", ".join([*shown, f"... {len(shapes)} in all"] if len(shapes) > _SHOWN else shown)


def rows_of(args: Sequence[Any], devices: Sequence[int]) -> list[Sequence[Any]]:
    """Arguments by position in `devices`: from a row for each of them, or from one flat sequence for all."""
    if isinstance(args, np.ndarray | DeviceArray):
        raise ArgumentError("arguments: expected a sequence of arrays, found a single array")
    if not isinstance(args, Iterable) or isinstance(args, str | bytes | Mapping):
        raise ArgumentError(f"arguments: expected a sequence of arrays, found {type(args).__name__}")
    args = list(args)
    if any(isinstance(row, list | tuple) for row in args):
        if len(args) != len(devices):
            raise ArgumentError(f"arguments: expected {len(devices)} lists, one a device, found {len(args)}")
        for row, device in zip(args, devices, strict=True):
            if not isinstance(row, list | tuple):
                raise ArgumentError(f"arguments on device {device}: expected a list, found {type(row).__name__}")
        return args
    return [args] * len(devices)


def as_argument(value: Any, shape: Shape, k: int, device: int) -> NDArray[np.uint8]:
    """The bytes of an argument; ArgumentError where its type or dimension sizes differ from `shape`.

    Python numbers take the parameter's type, where it holds them; everything else must have it already.
    """
    if not shape.is_array:
        return np.empty(0, np.uint8)  # tokens have no bytes
    dtype = shape.dtype.dtype
    try:
        is_number = isinstance(value, bool | int | float | complex)
        array = held_number(value, shape.dtype) if is_number else np.asarray(value)
    except ValueError as error:
        raise ArgumentError(f"argument {k} on device {device}: expected {shape}: {error}") from None
    if array.dtype != dtype or not shape.holds(array.shape):
        try:
            name = element_type_of(array.dtype).name
        except (KeyError, TypeError):
            name = str(array.dtype)
        found = f"{name}[{','.join(map(str, array.shape))}]"
        raise ArgumentError(f"argument {k} on device {device}: expected {shape}, found {found}")
    if array.shape != shape.dims:
        padded = np.zeros(shape.dims, dtype)
        padded[tuple(slice(n) for n in array.shape)] = array
        array = padded
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def put_array(cluster: Devices, value: Any, device: int) -> DeviceArray:
    """Copy what np.asarray takes to a device; ArgumentError for types that no element type holds."""
    array = np.asarray(value)
    try:
        shape = Shape(element_type_of(array.dtype), array.shape)
    except (KeyError, TypeError):
        raise ArgumentError(f"no element type holds values of {array.dtype}") from None
    block = cluster.heap.allocate(array.nbytes, (device,))
    memory = cluster.memory(device)
    memory.write(block.offset, as_argument(array, shape, 0, device))
    return DeviceArray(memory, block, block.offset, device, shape)


def _dimension_sizes(value: Any) -> tuple[int, ...]:
    return value.shape if type(value) is DeviceArray else np.shape(value)


def _has_dimension(value: Any, k: int, dimension: int, device: int) -> bool:
    if dimension < len(_dimension_sizes(value)):
        return True
    raise ArgumentError(f"argument {k} on device {device}: it has no dimension {dimension}")


def _lies_otherwise(value: DeviceArray, shape: Shape) -> bool:
    """Whether an array on a device is an argument of this dynamic shape, but is not padded to the same bounds."""
    same = value.hlo_shape.element_type is shape.element_type and value.hlo_shape.dims != shape.dims
    return same and shape.is_dynamic and shape.holds(value.shape)


def _fits(value: DeviceArray, shape: Shape) -> bool:
    """Whether an array on a device is placed as an argument of this shape has to be."""
    same = value.hlo_shape.element_type is shape.element_type and value.hlo_shape.dims == shape.dims
    return same and (not shape.is_array or shape.holds(value.shape))


def expand(programs: Mapping[Any, Any]) -> list[tuple[tuple[int, ...], Any]]:
    """(devices, module) of each program of an MPMD run; keys are device ids or iterables of them, and disjoint."""
    found: list[tuple[tuple[int, ...], Any]] = []
    taken: set[int] = set()
    for key, module in programs.items():
        devices = (key,) if isinstance(key, int) else tuple(key)
        if not devices or len(set(devices)) != len(devices) or taken & set(devices):
            raise ArgumentError(f"devices {list(devices)}: every program needs devices of its own, each named once")
        taken |= set(devices)
        found.append((devices, module))
    if not found:
        raise ArgumentError("programs: expected at least one, found none")
    return found
