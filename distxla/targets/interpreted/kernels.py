"""Kernels as C functions that run an op's `evaluate` on the buffers that they are given."""

from __future__ import annotations

import ctypes
import traceback
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from distxla.errors import InternalError, raised
from distxla.ir.shape import Shape
from distxla.ops.support.executable import executable
from distxla.oracle.evaluation import Device, InstructionEvaluation, Peers
from distxla.oracle.value_leaves import checked
from distxla.program.abi import Context, Status
from distxla.program.artifact import CompiledProgram, ImportedKernel
from distxla.targets.target import KernelErrorHandler

Array = np.ndarray[Any, Any]


class _Alone:
    """`reference.evaluation.World` of a kernel, which never communicates."""

    def __init__(self) -> None:
        self.loops: list[Any] = []

    def check(self) -> None:
        """Nothing ends a kernel before its end."""

    def note(self, *_: Any) -> None:
        """Loops within kernels are in no report."""

    def __getattr__(self, name: str) -> Any:
        raise InternalError(f"a kernel has asked for more than its device: {name}")


class Kernels:
    """Those of one loaded program. report: called with a kernel's error, before the program ends."""

    def __init__(self, program: CompiledProgram, report: KernelErrorHandler | None) -> None:
        if program.module is None and program.kernels:
            raise InternalError(f"{program.name} has no module to interpret")
        self._module = program.module
        self._report = report
        self._devices: dict[int, Device] = {}  # one in a replica

    def function(self, kernel: ImportedKernel) -> Any:
        """i32 (Context*, operand leaves …, result leaves …, scratch): a Status."""
        leaves = [leaf for shape in (*kernel.operands, kernel.instruction.shape) for leaf in shape.leaves()]
        count = sum(leaf.is_array for leaf in leaves)

        def call(context: int, *pointers: int) -> int:
            try:
                self._run(kernel, Context.from_address(context), pointers[:count])
            except BaseException as error:  # nothing may pass through native frames
                self._tell(kernel, error)
                return Status.ROUTINE_FAILED
            return Status.OK

        return ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * (count + 2))(call)

    def _run(self, kernel: ImportedKernel, context: Context, pointers: tuple[int, ...]) -> None:
        instruction, places = kernel.instruction, iter(pointers)
        operands = [_view(shape, places, writable=False) for shape in kernel.operands]
        target = _view(instruction.shape, places, writable=True)
        run = InstructionEvaluation(cast(Peers, _Alone()), self._of(context), instruction, kernel.operands)
        value = checked(executable(instruction.op).evaluate(run, *operands), instruction.shape, instruction)
        # a result may be where an operand is: all of them are known before the first is written
        for place, array in zip(_leaves(target), [leaf.copy() for leaf in _leaves(value)], strict=True):
            place[...] = array

    def _of(self, context: Context) -> Device:
        """The device, with a random state that goes on from call to call."""
        device = self._devices.get(context.device)
        if device is None:
            assert self._module is not None  # it has a kernel
            device = Device(context.device, context.replica, context.partition, self._module)
            self._devices[context.device] = device
        return device

    def _tell(self, kernel: ImportedKernel, error: BaseException) -> None:
        if self._report is None:
            return
        why = raised(error)
        frames = "".join(traceback.format_exception(error)).rstrip()
        self._report(f"interpreting {kernel.instruction.name} ({kernel.instruction.opcode}): {why}", frames)


def _view(shape: Shape, places: Iterator[int], *, writable: bool) -> Any:
    """Device memory as an array of `shape`, or a tuple of them; None for a token."""
    if shape.elements is not None:
        return tuple(_view(element, places, writable=writable) for element in shape.elements)
    if not shape.is_array:
        return None
    memory = (ctypes.c_uint8 * shape.byte_size).from_address(next(places))
    array = np.ctypeslib.as_array(memory).view(shape.dtype.dtype).reshape(shape.dims)
    array.flags.writeable = writable
    return array


def _leaves(value: Any) -> Iterator[Array]:
    if isinstance(value, tuple):
        for element in value:
            yield from _leaves(element)
    elif value is not None:
        yield value
