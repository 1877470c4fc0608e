"""Custom-calls of the user's own: a C symbol of a shared library, or a Python callable.

A module's text names a target only. The process that runs the module defines the name, through
`register_custom_call` or the command line.
"""

from __future__ import annotations

import ctypes
import traceback
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from distxla.errors import ArgumentError, DistxlaError, ExecutionError, raised
from distxla.ir.element_type import held_number
from distxla.ir.module import Module
from distxla.ir.nested_values import flat_leaves
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass, replace
from distxla.ops.custom_calls.aliased_leaves import aliased_leaves, leaf_range
from distxla.ops.custom_calls.ffi.attributes import read_attributes
from distxla.ops.custom_calls.ffi.handler import FfiCall, FfiError
from distxla.ops.custom_calls.ffi.layout import TYPES, Stage
from distxla.ops.custom_calls.status_returning import (
    FAILURE,
    STATUS_RETURNING_UNIFIED,
    SUCCESS,
    StatusCall,
    define_status_functions,
)
from distxla.ops.custom_calls.target import Call, CustomCallTarget, built_in_target
from distxla.ops.support.emit import Buffer, KernelEmitter
from distxla.ops.support.evaluation import Evaluation

ORIGINAL, TYPED_FFI = "API_VERSION_ORIGINAL", "API_VERSION_TYPED_FFI"
UNSPECIFIED = "API_VERSION_UNSPECIFIED"


@dataclass(frozen=True)
class UserTarget(CustomCallTarget):
    """A target that the user has registered under `name`."""

    name: str

    @property
    @abstractmethod
    def kind(self) -> str:
        """The kind of routine, on which the code of a call depends: "native", "python" or "zeros"."""

    def obstacle(self, call: Call) -> str | None:
        op = call.op
        if op.called_computations:
            return f'custom-call of "{self.name}" calls computations, which a registered routine cannot be given'
        opaque = next((leaf for s in (call.shape, *call.operands) for leaf in s.leaves() if leaf.is_opaque), None)
        if opaque is not None:
            return f'custom-call of "{self.name}" with a value of {opaque}'
        return None


@dataclass(frozen=True)
class NativeTarget(UserTarget):
    """`void symbol(void* out, void** in)` of a shared library; library None: known by name only, to compile for it.

    out: the result's buffer; for a tuple a `void**` table of its elements', nested ones likewise.  in: a table of the
    operands', of which tuples are tables, too. Tokens are null pointers. Arrays have the layouts that the instruction
    states. An operand that `output_to_operand_aliasing` names is at the same address as its part of the result.

    A call of API_VERSION_TYPED_FFI takes `symbol` for a handler of XLA's FFI (ffi/) instead, and a status-returning one
    for a function that gets a status, too (status_returning.py). stages: (name, symbol) of handlers for other stages
    than the execution.
    """

    library: str | None = None
    symbol: str = ""
    stages: tuple[tuple[str, str], ...] = ()

    @property
    def kind(self) -> str:
        return "native"

    def obstacle(self, call: Call) -> str | None:
        if (why := super().obstacle(call)) is not None:
            return why
        if call.op.api_version == UNSPECIFIED:
            return f'custom-call of "{self.name}" with api_version={UNSPECIFIED}, which does not say how to call it'
        if call.op.api_version != ORIGINAL:
            return self._called_obstacle(call)
        for shape in (*operand_layouts(call), call.shape):
            for leaf in shape.leaves():
                if leaf.layout is not None and (leaf.layout.tiles or leaf.layout.other):
                    return f'custom-call of "{self.name}" with an array in tiles'
        for output, operand, index in call.op.output_to_operand_aliasing:
            shared = (shape_at(call.shape, output), shape_at(operand_layouts(call)[operand], index))
            orders = [[leaf.major_to_minor() for leaf in shape.leaves() if leaf.is_array] for shape in shared]
            if orders[0] != orders[1]:
                return f'custom-call of "{self.name}" with an operand that is the result in another layout'
        deep = [s for s in operand_layouts(call) if s.is_tuple]
        deep += [s for s in call.shape.elements or () if s.is_tuple]
        if any(not is_row_major(leaf) for shape in deep for leaf in shape.leaves()):
            return f'custom-call of "{self.name}" with an array in a nested tuple that is not row-major'
        return None

    def _called_obstacle(self, call: Call) -> str | None:
        for leaf in [leaf for shape in (*operand_layouts(call), call.shape) for leaf in shape.leaves()]:
            if leaf.is_array and leaf.dtype.name not in TYPES and call.op.api_version == TYPED_FFI:
                return f'custom-call of "{self.name}" with an array of {leaf.dtype.name}, which the typed FFI lacks'
            if not is_row_major(leaf) or (leaf.layout is not None and (leaf.layout.tiles or leaf.layout.other)):
                return f'custom-call of "{self.name}" takes an array that is not row-major: {leaf}'
        if call.op.api_version == TYPED_FFI:
            read_attributes(call.instruction.backend_config)
        return None

    def _evaluate_called(self, call: Call, run: Evaluation, operands: Sequence[Any]) -> Any:
        given = [leaf for value in operands for leaf in flat_leaves(value)]
        arguments = [None if leaf is None else np.ascontiguousarray(leaf) for leaf in given]
        results = _empty(call.shape)
        made = flat_leaves(results)
        for target, source in aliased_leaves(call.op.output_to_operand_aliasing, call.shape, call.operands):
            made[target][...] = arguments[source]
            arguments[source] = made[target]
        config = call.instruction.backend_config
        try:
            instance = native_call(self, call.op.api_version, config, call.operands, call.shape, device=0)
            try:
                instance(*([None if a is None else a.ctypes.data for a in row] for row in (arguments, made)))
            finally:
                instance.close()
        except FfiError as error:
            raise ExecutionError(f'custom-call {call.instruction.name}: "{self.name}" {error}') from error
        return results

    def evaluate(self, call: Call, run: Evaluation, *operands: Any) -> Any:
        if call.op.api_version != ORIGINAL:
            return self._evaluate_called(call, run, operands)
        arguments = tuple(_physical(value, shape) for value, shape in zip(operands, operand_layouts(call), strict=True))
        results = _empty(call.shape)
        for output, operand, index in call.op.output_to_operand_aliasing:
            part, source = _part(results, output), _part(arguments[operand], index)
            for to, of in zip(flat_leaves(part), flat_leaves(source), strict=True):
                if to is not None:
                    to[...] = of
            arguments = (*arguments[:operand], _with_part(arguments[operand], index, part), *arguments[operand + 1 :])
        keep: list[Any] = []
        load_symbol(self)(_pointer_tree(results, keep), _pointer_tree(arguments, keep))
        return _logical(results, call.shape)

    def emit_kernel(self, call: Call, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        places = list(operands)
        for output, operand, index in call.op.output_to_operand_aliasing:
            to = leaf_range(call.shape, output)
            of = leaf_range(Shape.tuple(call.operands), (operand, *index))
            for target, source in zip(to, of, strict=True):
                emit.copy(results[target], places[source])
                places[source] = results[target]
        emit.call_native(import_name(self.name), call.shape, results, call.operands, places)


@dataclass(frozen=True)
class PythonTarget(UserTarget):
    """A callable on NumPy arrays; function None: known by name only, to compile for it."""

    function: Callable[..., Any] | None = None

    @property
    def kind(self) -> str:
        return "python"

    def evaluate(self, call: Call, run: Evaluation, *operands: Any) -> Any:
        assert self.function is not None
        try:
            return checked_result(self.function(*map(_read_only, operands)), call.shape)
        except ResultError as error:
            raise ExecutionError(f'custom-call {call.instruction.name}: "{self.name}" {error}') from error
        except DistxlaError:
            raise
        except Exception as error:
            summary = raised(error)
            failure = ExecutionError(f'custom-call {call.instruction.name}: "{self.name}" raised {summary}')
            failure.add_note("".join(traceback.format_exception(error)).rstrip())
            raise failure from error


@dataclass(frozen=True)
class ZerosTarget(UserTarget):
    """Zeros in place of the results of a target that nothing executes, as the user has asked for."""

    @property
    def kind(self) -> str:
        return "zeros"

    def evaluate(self, call: Call, run: Evaluation, *operands: Any) -> Any:
        return _zeros(call.shape)

    def emit_kernel(self, call: Call, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        for result in results:
            emit.fill(result, emit.constant(0, result.shape.dtype))


registered: dict[str, UserTarget] = {}
_KINDS: Final = {"native": NativeTarget, "python": PythonTarget, "zeros": ZerosTarget}


def register_custom_call(
    name: str,
    function: Callable[..., Any] | None = None,
    *,
    library: str | Path | None = None,
    symbol: str = "",
    stages: Mapping[str, str] | None = None,
    stub: str | None = None,
) -> None:
    """Let custom-calls whose target is `name` run a routine of the user's, in programs that are compiled from now on.

        register_custom_call("relu6", lambda x: np.clip(x, 0, 6))
        register_custom_call("relu6", library="./librelu.so", symbol="relu6")
        register_custom_call("relu6", stub="zeros")

    function: called in each device's process with the operands as NumPy arrays that can't be written (tuples as tuples,
    tokens as None; they are valid during the call only) and returns an array of the result's shape and type, or a
    tuple; it is sent to those processes by cloudpickle. Its code may run at any time and in any process.
    library, symbol: a C function `void symbol(void* out, void** in)` (symbol: `name` by default); a library without a
    slash that is no file here is looked for where the system's loader looks. It is loaded in this process, too. For
    calls of API_VERSION_TYPED_FFI the symbol is a handler of XLA's FFI, for status-returning ones a function with a
    status.  stages: symbols of such handlers for the other stages, "instantiate", "prepare" and "initialize".
    stub: "zeros" puts zeros in place of what a routine computes that you don't have, and calls nothing.

    A name that was registered before now means the new routine; programs compiled before keep the old one.  Raises
    ArgumentError for names that come with distxla, a library that cannot be loaded, a symbol that it doesn't have.
    """
    _require_free(name)
    if sum(given is not None for given in (function, library, stub)) != 1:
        raise ArgumentError(
            f'custom-call target "{name}": give either a callable, or library= and symbol=, or stub="zeros"'
        )
    found: UserTarget
    if stub is not None:
        if stub != "zeros":
            raise ArgumentError(f'custom-call target "{name}": stub={stub!r}: expected "zeros"')
        if symbol or stages:
            raise ArgumentError(f'custom-call target "{name}": a stub has neither symbol= nor stages=')
        found = ZerosTarget(name)
    elif library is not None:
        path = Path(library)
        place = str(path.resolve()) if path.exists() or path.parent != Path() else str(library)
        unknown = next((stage for stage in stages or () if stage not in STAGES), None)
        if unknown is not None:
            raise ArgumentError(f'custom-call target "{name}": stage {unknown!r} is none of {", ".join(STAGES)}')
        found = NativeTarget(name, place, symbol or name, tuple((stages or {}).items()))
        load_symbol(found)
        load_stages(found)
    else:
        if not callable(function):
            raise ArgumentError(f'custom-call target "{name}": {type(function).__name__} is not callable')
        found = PythonTarget(name, function)
    registered[name] = found


def _require_free(name: str) -> None:
    if not name:
        raise ArgumentError("a custom-call target needs a name")
    if built_in_target(name) is not None:
        raise ArgumentError(f'custom-call target "{name}" comes with distxla')


def unregister_custom_call(name: str) -> None:
    """Forget a registration; ArgumentError where there is none."""
    if registered.pop(name, None) is None:
        raise ArgumentError(f'custom-call target "{name}" is not registered')


def user_target(name: str) -> UserTarget | None:
    return registered.get(name)


def user_targets(module: Module) -> tuple[UserTarget, ...]:
    """The registered targets that the module names, by name."""
    if not registered:
        return ()
    names = {
        name for computation in module.computations for i in computation if (name := i.op.called_target) in registered
    }
    return tuple(registered[name] for name in sorted(names))


def is_user_target(name: str) -> bool:
    """Whether a custom-call target of that name is registered, or declared."""
    return name in registered


def declarations(targets: Iterable[UserTarget]) -> tuple[tuple[str, str], ...]:
    """(name, kind): all that a compiler needs to know of them."""
    return tuple((target.name, target.kind) for target in targets)


@contextmanager
def declared(names: Iterable[tuple[str, str]]) -> Iterator[None]:
    """For the compiler's process: during the with-body exactly these targets are registered, by name and kind only."""
    before = dict(registered)
    registered.clear()
    for name, kind in names:
        registered[name] = _KINDS[kind](name)
    try:
        yield
    finally:
        registered.clear()
        registered.update(before)


# --- C functions ---------------------------------------------------------------------------------------------------

NATIVE_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_IMPORT = "distxla.custom_call."


def import_name(name: str) -> str:
    """The import of compiled code for the target: any text may be a target's name, so it is spelt in digits."""
    return _IMPORT + name.encode("utf-8", "surrogatepass").hex()


STAGES = ("instantiate", "prepare", "initialize")


def load_stages(target: NativeTarget) -> dict[Stage, int]:
    """The addresses of the handlers for all stages; ArgumentError as `load_symbol`."""
    found = {Stage.EXECUTE: symbol_address(load_symbol(target))}
    for name, symbol in target.stages:
        found[Stage[name.upper()]] = symbol_address(load_symbol(replace(target, symbol=symbol)))
    return found


def native_call(
    target: NativeTarget, interface: str, config: str | None, operands: Sequence[Shape], result: Shape, device: int
) -> FfiCall | StatusCall:
    """A call of the target in another interface than the original one. FfiError, ArgumentError where it can't be."""
    if interface == TYPED_FFI:
        leaves = [leaf for shape in operands for leaf in shape.leaves()]
        return FfiCall(load_stages(target), config, leaves, list(result.leaves()), device)
    if hasattr(_library(target), FAILURE):
        raise ArgumentError(f'custom-call target "{target.name}": {target.library} brings a {FAILURE} of its own')
    address, is_unified = symbol_address(load_symbol(target)), interface == STATUS_RETURNING_UNIFIED
    return StatusCall(address, config, operands, result, is_unified=is_unified)


def _library(target: NativeTarget) -> ctypes.CDLL:
    """The library, loaded into this process; ArgumentError where it can't be."""
    try:
        try:
            return ctypes.CDLL(target.library)
        except OSError as error:
            if FAILURE not in str(error) and SUCCESS not in str(error):
                raise
            define_status_functions()
            return ctypes.CDLL(target.library)
    except OSError as error:
        raise ArgumentError(f'custom-call target "{target.name}": cannot load {target.library}: {error}') from None


def load_symbol(target: NativeTarget) -> Any:
    """The C function, its library loaded into this process; ArgumentError where either is missing."""
    library = _library(target)
    try:
        address = ctypes.cast(getattr(library, target.symbol), ctypes.c_void_p).value
    except AttributeError:
        message = f'custom-call target "{target.name}": {target.library} has no symbol {target.symbol!r}'
        raise ArgumentError(message) from None
    assert address is not None
    return NATIVE_TYPE(address)


def symbol_address(function: Any) -> int:
    """Where a function of `load_symbol` is."""
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


def operand_layouts(call: Call) -> tuple[Shape, ...]:
    """The operands' shapes with the layouts that the routine takes them in."""
    return call.op.operand_layout_constraints or call.operands


def shape_at(shape: Shape, index: Sequence[int]) -> Shape:
    """The part of a tuple's shape at `index`."""
    for k in index:
        assert shape.elements is not None
        shape = shape.elements[k]
    return shape


def is_row_major(shape: Shape) -> bool:
    return not shape.is_array or shape.minor_to_major() == tuple(range(shape.rank - 1, -1, -1))


def _physical(value: Any, shape: Shape) -> Any:
    if shape.elements is not None:
        return tuple(_physical(v, s) for v, s in zip(value, shape.elements, strict=True))
    return np.ascontiguousarray(np.transpose(value, shape.major_to_minor())) if shape.is_array else None


def _empty(shape: Shape) -> Any:
    if shape.elements is not None:
        return tuple(map(_empty, shape.elements))
    if not shape.is_array:
        return None
    return np.zeros([shape.dims[d] for d in shape.major_to_minor()], shape.dtype.dtype)


def _zeros(shape: Shape) -> Any:
    if shape.elements is not None:
        return tuple(map(_zeros, shape.elements))
    # f8e8m0fnu has no zero, but NaN
    return np.zeros(shape.dims, np.int8).astype(shape.dtype.dtype) if shape.is_array else None


def _logical(value: Any, shape: Shape) -> Any:
    if shape.elements is not None:
        return tuple(_logical(v, s) for v, s in zip(value, shape.elements, strict=True))
    return np.transpose(value, np.argsort(shape.major_to_minor())) if shape.is_array else None


def _pointer_tree(value: Any, keep: list[Any]) -> int | None:
    """The address of an array, or of a table of a tuple's trees; None for a token. keep: objects to keep alive."""
    if isinstance(value, tuple):
        table = (ctypes.c_void_p * max(1, len(value)))(*(_pointer_tree(v, keep) for v in value))
        keep.append(table)
        return ctypes.addressof(table)
    if value is None:
        return None
    keep.append(value)
    address: int = value.ctypes.data
    return address


def _part(value: Any, index: Sequence[int]) -> Any:
    for k in index:
        value = value[k]
    return value


def _with_part(value: Any, index: Sequence[int], part: Any) -> Any:
    if not index:
        return part
    return tuple(_with_part(v, index[1:], part) if k == index[0] else v for k, v in enumerate(value))


# --- Python --------------------------------------------------------------------------------------------------------


class ResultError(ValueError):
    """How a callable's result differs from the instruction's: "returned f64[2] where f32[2] is due"."""


def checked_result(value: Any, shape: Shape) -> Any:
    """A callable's result as arrays of `shape`; Python numbers take its type. ResultError for anything else."""
    if shape.elements is not None:
        if not isinstance(value, tuple | list) or len(value) != len(shape.elements):
            found = f"{len(value)} values" if isinstance(value, tuple | list) else type(value).__name__
            raise ResultError(f"returned {found} where a tuple {shape} is due")
        return tuple(checked_result(v, s) for v, s in zip(value, shape.elements, strict=True))
    if not shape.is_array:
        return None
    dtype = shape.dtype.dtype
    try:
        array = held_number(value, shape.dtype) if type(value) in (bool, int, float, complex) else np.asarray(value)
    except ValueError as error:
        raise ResultError(f"returned no {shape}: {error}") from None
    if array.dtype != dtype or array.shape != shape.dims:
        raise ResultError(f"returned {array.dtype}[{','.join(map(str, array.shape))}] where {shape} is due")
    return array


def _read_only(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_read_only, value))
    if value is None:
        return None
    view = value.view()
    view.flags.writeable = False
    return view
