"""Calls of functions in the driver's process: custom-calls that become host transfers.

JAX lowers `debug.print`, `pure_callback`, `io_callback` and `buffer_callback` for CPUs to custom-calls that name a
Python function by its number. Each becomes a send of the operands to the host and, where it has results, a recv of
these. All calls of a program share one channel to the host, so their order is the device's; each has a channel for its
results.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import ClassVar

import numpy as np

from distxla.errors import ArgumentError, UnsupportedOpError, VerificationError
from distxla.ir.computation import Computation
from distxla.ir.element_type import U32
from distxla.ir.instruction import Instruction
from distxla.ir.literal import Literal
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.ir.stream_key import FIRST_HOST_CALL
from distxla.lazy_dataclass import dataclass, replace
from distxla.ops.channel import Recv, RecvDone, Send, SendDone
from distxla.ops.constant import Constant
from distxla.ops.custom_calls.aliased_leaves import aliased_leaves
from distxla.ops.custom_calls.custom_call import CustomCall
from distxla.ops.custom_calls.ffi.config import ConfigError, read_config
from distxla.ops.custom_calls.host_callback import BY_NUMBER, CALLBACKS, FILLING
from distxla.ops.support.rewriter import Rewriter
from distxla.ops.token import AfterAll
from distxla.ops.tuple import GetTupleElement, Tuple
from distxla.program.host_call_site import FunctionKey, HostCallSite
from distxla.rewrites.step import Compilation, Step


@dataclass(frozen=True)
class HostCallsAsTransfers(Step):
    """Where functions of the driver are given, make each call of one a send to the host, and a recv of its results.

    Without functions (None) calls stay, and are refused later. Raises ArgumentError, at the call, for a callback whose
    function is missing; UnsupportedOpError for values that can't be sent.
    """

    name: ClassVar[str] = "host-calls"

    def apply(self, compilation: Compilation) -> Compilation:
        if compilation.host_calls is None:
            return compilation
        module, sites = _as_transfers(compilation.module, compilation.host_calls)
        if not sites:
            return compilation
        changed = Compilation.of(module, compilation.counts, compilation.in_place, compilation.host_calls)
        return replace(changed, host_call_sites=sites)


def functions_with_results(module: Module) -> frozenset[int]:
    """The numbers of the functions of JAX's callbacks from which a module takes values."""
    found = set()
    for computation in module.computations:
        for instruction in computation:
            op, shape = instruction.op, instruction.shape
            results = shape.elements if shape.elements is not None else (shape,)
            if not isinstance(op, CustomCall) or not any(result.is_array for result in results):
                continue
            if op.custom_call_target in BY_NUMBER:
                with suppress(ConfigError):  # told when it is compiled
                    found.add(read_config(instruction.backend_config).get("index", int))
    return frozenset(found)


def _as_transfers(module: Module, keys: Collection[FunctionKey]) -> tuple[Module, tuple[HostCallSite, ...]]:
    """The module with its calls of these functions as host transfers, and these calls."""
    sites: list[HostCallSite] = []
    new: list[Computation] = []
    for computation in module.computations:
        if not any(isinstance(instruction.op, CustomCall) for instruction in computation):
            new.append(computation)
            continue
        rewriter = Rewriter(computation)
        for old in computation:
            instruction = rewriter.current(old)
            key = _key(module, old, keys)
            if key is None:
                rewriter.keep(instruction)
                continue
            operands = tuple(operand.shape.without_layout() for operand in computation.operands(old))
            results = (old.shape.elements if old.shape.elements is not None else (old.shape,)) or ()
            where = module.locate(old)
            for shape in (*operands, *results):
                if not (shape.is_array and not shape.is_dynamic) and not shape.is_token:
                    raise UnsupportedOpError(f"{old.name}: a function of the driver takes and gives no {shape}", where)
            if not sites:
                _require_free_channels(module)
            bare = tuple(shape.without_layout() for shape in results)
            sites.append(HostCallSite(len(sites), key, old.name, where, operands, bare, *_filling(old, operands)))
            _rewrite(rewriter, instruction, sites[-1])
        new.append(rewriter.finish())
    return module.with_computations(new), tuple(sites)


def _key(module: Module, instruction: Instruction, keys: Collection[FunctionKey]) -> FunctionKey | None:
    """The function that an instruction calls in the driver's process; None where it calls none."""
    op = instruction.op
    if not isinstance(op, CustomCall):
        return None
    target = op.custom_call_target
    if target in keys:
        return target
    if target not in BY_NUMBER:
        if target in CALLBACKS:
            raise ArgumentError(f"{instruction.name}: {CALLBACKS[target]}", module.locate(instruction))
        return None
    try:
        index = read_config(instruction.backend_config).get("index", int)
    except ConfigError as error:
        raise VerificationError(f"{instruction.name}: {error}", module.locate(instruction)) from error
    if index not in keys:
        given = f"host_calls has {', '.join(map(repr, keys))}" if keys else "no host_calls were given"
        raise ArgumentError(
            f'{instruction.name} calls function {index} of the process that lowered the program ("{target}"), '
            f"but {given}: Cluster.compile(module, host_calls={{{index}: function}}) runs it on the driver",
            module.locate(instruction),
        )
    return index


def _filling(call: Instruction, operands: tuple[Shape, ...]) -> tuple[bool, tuple[tuple[int, int], ...]]:
    """`fills` and `shared` of a call's site."""
    op = call.op
    if not isinstance(op, CustomCall) or op.custom_call_target != FILLING:
        return False, ()
    return True, tuple(aliased_leaves(op.output_to_operand_aliasing, call.shape, operands))


def _require_free_channels(module: Module) -> None:
    """VerificationError where the program itself uses a channel of host calls."""
    for computation in module.computations:
        for instruction in computation:
            if (instruction.op.channel or 0) >= FIRST_HOST_CALL:
                raise VerificationError(
                    f"{instruction.name}: channels from {FIRST_HOST_CALL} on are those of host calls",
                    module.locate(instruction),
                )


def _rewrite(rewriter: Rewriter, call: Instruction, site: HostCallSite) -> None:
    """Add the transfers. The instruction in which the device waits keeps the call's name."""

    def add(op: object, shape: Shape, *operands: str) -> str:
        return rewriter.add(call, op, shape, operands).name  # type: ignore[arg-type]

    scalar, token = Shape(U32), Shape.token()
    number = add(Constant(literal=Literal.of(np.uint32(site.number), scalar)), scalar)
    values = [name for name, shape in zip(call.operands, site.operands, strict=True) if shape.is_array]
    tokens = [name for name, shape in zip(call.operands, site.operands, strict=True) if shape.is_token]
    item = Shape.tuple((scalar, *(shape for shape in site.operands if shape.is_array)))
    sent = add(Tuple(), item, number, *values)
    before = add(AfterAll(), token, *tokens)
    send = Send(channel_id=FIRST_HOST_CALL, is_host_transfer=True)
    done = SendDone(channel_id=FIRST_HOST_CALL, is_host_transfer=True)
    plain = call.replace(backend_config=None, sharding=None, frontend_attributes=(), other=())
    context = Shape.tuple((item, scalar, token))
    if not site.arrays:
        rewriter.keep(plain.replace(op=send, shape=context, operands=(sent, before)))
        after = add(done, token, call.name)
        taken = []
    else:
        begun = add(send, context, sent, before)
        rewriter.keep(rewriter[begun].replace(control_predecessors=call.control_predecessors))
        over = add(done, token, begun)
        value = Shape.tuple(site.arrays)
        recv = Recv(channel_id=site.channel, is_host_transfer=True)
        received = add(recv, Shape.tuple((value, scalar, token)), over)
        result = Shape.tuple((value, token))
        recv_done = RecvDone(channel_id=site.channel, is_host_transfer=True)
        rewriter.keep(plain.replace(op=recv_done, shape=result, operands=(received,), control_predecessors=()))
        leaves = add(GetTupleElement(index=0), value, call.name)
        after = add(GetTupleElement(index=1), token, call.name)
        taken = [add(GetTupleElement(index=k), shape, leaves) for k, shape in enumerate(site.arrays)]
    names = iter(taken)
    parts = [next(names) if shape.is_array else after for shape in site.results]
    if call.shape.elements is None:
        rewriter.forward(call.name, parts[0])
    else:
        rewriter.forward(call.name, add(Tuple(), Shape.tuple(site.results), *parts))
