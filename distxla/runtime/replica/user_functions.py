"""Packs registered custom-call functions for the replicas, and loads and calls them there.

Python callables travel as cloudpickle's bytes in an argument of an actor's method, C functions as a library's path and
a symbol. A replica imports the modules that a callable needs from where the driver would.
"""

from __future__ import annotations

import ctypes
import pickle
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from distxla.errors import ArgumentError, raised
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass
from distxla.ops.custom_calls.ffi.handler import FfiCall, FfiError
from distxla.ops.custom_calls.status_returning import StatusCall
from distxla.ops.custom_calls.user import (
    NativeTarget,
    PythonTarget,
    ResultError,
    UserTarget,
    checked_result,
    import_name,
    load_symbol,
    native_call,
    symbol_address,
)
from distxla.program.abi import Status
from distxla.program.artifact import HostRoutine, Site
from distxla.targets.registry import resolve_import

# i32 routine(Context*, u32 site, const u64* operands, const u64* results)
ROUTINE_TYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p)


@dataclass(frozen=True)
class Routines:
    """The functions of a program's custom-calls. python: (target, pickled callable).  path: the driver's imports."""

    native: tuple[NativeTarget, ...]
    python: tuple[tuple[str, bytes], ...]
    path: tuple[str, ...]


@dataclass(frozen=True)
class RoutineFailure:
    """site: of the program that ran; -1 where a kernel failed that is interpreted.  summary: "raised ValueError: …".
    traceback: the user's frames, or "".
    """

    site: int
    summary: str
    traceback: str


def pack(targets: Sequence[UserTarget]) -> Routines:
    """For sending to the replicas; ArgumentError for a callable that cloudpickle can't take."""
    from ray import cloudpickle

    python = []
    for target in targets:
        if isinstance(target, PythonTarget):
            try:
                python.append((target.name, cloudpickle.dumps(target.function)))
            except Exception as error:
                message = f'custom-call target "{target.name}": the callable cannot be sent to the replicas: {error}'
                raise ArgumentError(message) from error
    return Routines(tuple(t for t in targets if isinstance(t, NativeTarget)), tuple(python), tuple(sys.path))


class LoadedRoutines:
    """The routines of one program in a replica.

    device: the replica's.  memory, memory_bytes: address and size of its own memory.  failure: called with the error of
    a routine, before the program ends with Status.ROUTINE_FAILED.
    """

    def __init__(
        self,
        routines: Routines,
        device: int,
        memory: int,
        memory_bytes: int,
        failure: Callable[[RoutineFailure], None],
    ) -> None:
        self._device = device
        self._memory = np.ctypeslib.as_array((ctypes.c_uint8 * memory_bytes).from_address(memory))
        self._report = failure
        self._native = {import_name(target.name): load_symbol(target) for target in routines.native}
        self._targets = {target.name: target for target in routines.native}
        self._instances: list[FfiCall | StatusCall] = []
        if routines.python:
            sys.path.extend(entry for entry in routines.path if entry not in sys.path)
        self._python: dict[str, Callable[..., Any]] = {}
        for name, data in routines.python:
            try:
                self._python[name] = pickle.loads(data)
            except Exception as error:
                message = f'custom-call target "{name}": the callable cannot be loaded in a replica: {error}'
                raise ArgumentError(message) from error

    def resolve(self, name: str) -> int:
        """The address of a function that the program imports."""
        function = self._native.get(name)
        return resolve_import(name) if function is None else symbol_address(function)

    def callback(self, site: Site) -> Any:
        """The C function for a site's place in the context's table; it lives as long as this object is referred to."""
        routine = site.routine
        assert routine is not None
        if routine.interface:
            return self._native_callback(routine)
        function = self._python[routine.target]

        def call(context: int, number: int, operands: int, results: int) -> int:
            try:
                self._run(function, routine, operands, results)
            except ResultError as error:
                self._report(RoutineFailure(number, str(error), ""))
                return Status.ROUTINE_FAILED
            except BaseException as error:  # nothing may pass through native frames
                summary = raised(error)
                frames = (
                    error.__traceback__.tb_next.tb_next if error.__traceback__ and error.__traceback__.tb_next else None
                )
                text = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
                self._report(RoutineFailure(number, f"raised {summary}", text))
                return Status.ROUTINE_FAILED
            return Status.OK

        return ROUTINE_TYPE(call)

    def _native_callback(self, routine: HostRoutine) -> Any:
        """The same for a handler of XLA's FFI, and for a function with a status. ArgumentError if it can't be had."""
        operands = [leaf for shape in routine.operands for leaf in shape.leaves()]
        results = list(routine.result.leaves())
        try:
            target = self._targets[routine.target]
            instance = native_call(
                target, routine.interface, routine.config, routine.operands, routine.result, self._device
            )
        except FfiError as error:
            raise ArgumentError(f'custom-call target "{routine.target}" {error}') from error
        self._instances.append(instance)
        base, sizes = int(self._memory.ctypes.data), [leaf.byte_size if leaf.is_array else 0 for leaf in results]

        def call(context: int, number: int, given: int, made: int) -> int:
            try:
                arguments = _addresses(base, given, operands)
                targets = _addresses(base, made, results)
                for target, source in routine.aliases:
                    ctypes.memmove(targets[target] or 0, arguments[source] or 0, sizes[target])
                    arguments[source] = targets[target]
                instance(arguments, targets)
            except FfiError as error:
                self._report(RoutineFailure(number, str(error), ""))
                return Status.ROUTINE_FAILED
            except BaseException as error:  # nothing may pass through native frames
                self._report(RoutineFailure(number, f"failed: {error}", traceback.format_exc().rstrip()))
                return Status.ROUTINE_FAILED
            return Status.OK

        return ROUTINE_TYPE(call)

    def close(self) -> None:
        """The program is unloaded."""
        for instance in self._instances:
            instance.close()

    def _run(self, function: Callable[..., Any], routine: HostRoutine, operands: int, results: int) -> None:
        count = sum(1 for shape in routine.operands for _ in shape.leaves())
        offsets = iter((ctypes.c_uint64 * count).from_address(operands)) if count else iter(())
        value = function(*(self._view(shape, offsets, writable=False) for shape in routine.operands))
        found = checked_result(value, routine.result)
        leaves = list(routine.result.leaves())
        offsets = iter((ctypes.c_uint64 * len(leaves)).from_address(results)) if leaves else iter(())
        _write(self._view(routine.result, offsets, writable=True), found)

    def _view(self, shape: Shape, offsets: Iterator[int], *, writable: bool) -> Any:
        """Device memory as an array of `shape`, or a tuple of them."""
        if shape.elements is not None:
            return tuple(self._view(element, offsets, writable=writable) for element in shape.elements)
        offset = next(offsets)
        if not shape.is_array:
            return None
        view = self._memory[offset : offset + shape.byte_size].view(shape.dtype.dtype).reshape(shape.dims)
        view.flags.writeable = writable
        return view


def _addresses(base: int, offsets: int, leaves: Sequence[Shape]) -> list[int | None]:
    """Where leaves are; None for tokens. offsets: address of their table."""
    table = (ctypes.c_uint64 * max(1, len(leaves))).from_address(offsets) if leaves else ()
    return [base + offset if leaf.is_array else None for offset, leaf in zip(table, leaves, strict=False)]


def _write(target: Any, value: Any) -> None:
    if isinstance(target, tuple):
        for t, v in zip(target, value, strict=True):
            _write(t, v)
    elif target is not None and target.size:
        target[...] = value
