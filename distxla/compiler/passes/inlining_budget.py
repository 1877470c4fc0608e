"""Chooses the computations that are outlined, compiled once as a function, because the program would become too large.

f1 calls f0 twice, f2 calls f1 twice, … f30: a billion instructions from 3 kB of text. Up to COPIED instructions every
call is replaced by its computation, which lets it fuse with the instructions around it. Beyond, computations that are
large and called from several places are outlined. The same goes for bodies of loops and branches, which the
planner copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from distxla.errors import UnsupportedOpError
from distxla.ir.computation import Computation
from distxla.ir.effects import Effects
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.names import Names
from distxla.ir.op import Lowering
from distxla.ops.call import OutlinedCall
from distxla.ops.parameter import Parameter

COPIED = 100_000  # instructions up to which everything is inlined
TIMES = 4  # or up to this multiple of the text's instructions, if that is more
MOST = 4  # a program beyond this multiple of those is refused
LEAST_OUTLINED = 16  # computations up to this many instructions are always inlined: a call costs as much
EXECUTED = (Lowering.CALL, Lowering.CONTROL)  # their computations are executed; those of others are applied to elements


def within_budget(module: Module) -> Module:
    """The module with OutlinedCall for calls that are not inlined; the same object if all can be inlined.

    Raises UnsupportedOpError, with a location, if the module is too large and the computations can't be outlined: those
    that are applied to elements, or hold dynamic dimensions, transfers, or an async start or done.
    """
    copied = max(COPIED, TIMES * sum(len(computation.instructions) for computation in module.computations))
    sizes = _sizes(module, frozenset())
    reached = module.reached()
    applied = _applied(reached)
    if sum(sizes[name] for name in {module.entry, *applied}) <= copied:
        return module
    share = _share(reached, copied)
    outlined = _chosen(module, reached, applied, share)
    sizes = _sizes(module, outlined)
    if sum(sizes[name] for name in {module.entry, *outlined, *applied}) > MOST * copied:
        raise _too_much(module, reached, outlined, share, MOST * copied)
    return _with_outlined_calls(module, outlined)


def _sizes(module: Module, outlined: frozenset[str]) -> dict[str, int]:
    """By computation its number of instructions after inlining all callees, except outlined ones."""
    found: dict[str, int] = {}
    for computation in module.computations:  # called ones precede their callers
        found[computation.name] = len(computation.instructions) + sum(
            found[name] for i in computation for name in i.op.called_computations if name not in outlined
        )
    return found


def _applied(reached: Iterable[Computation]) -> set[str]:
    """The computations that are applied to elements."""
    return {name for c in reached for i in c if i.op.lowering not in EXECUTED for name in i.op.called_computations}


def _share(reached: tuple[Computation, ...], copied: int) -> int:
    """The number of instructions that each call may be replaced by."""
    return max(LEAST_OUTLINED, copied // (2 * _times(reached).total()))


def _times(reached: Iterable[Computation]) -> Counter[str]:
    """How often each computation is called."""
    return Counter(name for c in reached for i in c for name in i.op.called_computations)


def _chosen(module: Module, reached: tuple[Computation, ...], applied: set[str], share: int) -> frozenset[str]:
    """The computations that are compiled once each."""
    times = _times(reached)
    inside_of_elements = {c.name for c in module.reached(*applied)} if applied else set()
    sizes: dict[str, int] = {}
    outlined: set[str] = set()
    for computation in reached:
        name = computation.name
        sizes[name] = len(computation.instructions) + sum(
            sizes[called] for i in computation for called in i.op.called_computations if called not in outlined
        )
        if (
            times[name] > 1
            and sizes[name] > share
            and name not in inside_of_elements
            and _obstacle(module, name) is None
        ):
            outlined.add(name)
    return frozenset(outlined)


def _obstacle(module: Module, name: str) -> str | None:
    """Why a computation can't be outlined; None if it can."""
    for computation in module.reached(name):
        for instruction in computation:
            op = instruction.op
            if op.effects is Effects.CHANNEL:
                return f"it holds the transfer {instruction.name}"
            if op.start_done.starts_pair or op.start_done.completes:
                return f"it holds only the start or the done of an asynchronous operation, {instruction.name}"
            if instruction.shape.is_dynamic:
                return f"{instruction.name} has dynamic dimensions"
    return None


def _too_much(
    module: Module, reached: tuple[Computation, ...], outlined: frozenset[str], share: int, most: int
) -> UnsupportedOpError:
    """The error, at a call of the smallest computation whose copies are too many and that can't be outlined."""
    sizes, times = _sizes(module, outlined), _times(reached)
    for computation in reached:
        for instruction in computation:
            for name in instruction.op.called_computations:
                if name in outlined or times[name] < 2 or sizes[name] <= share:
                    continue
                why = _obstacle(module, name) or "it is applied to elements"
                total = sizes[module.entry]
                return UnsupportedOpError(
                    f"{module.name} has {_about(total)} instructions with copies of what it calls, more than the "
                    f"{most} that are compiled; calls of {name} can't be kept as calls: {why}",
                    module.locate(instruction),
                )
    amount = _about(sizes[module.entry])
    return UnsupportedOpError(
        f"{module.name} has {amount} instructions with copies of what it calls, more than the {most} that are compiled"
    )


def _about(count: int) -> str:
    return str(count) if count < 10**9 else f"about 10^{len(str(count)) - 1}"


def _with_outlined_calls(module: Module, outlined: frozenset[str]) -> Module:
    """The module with calls of these computations outlined.

    A loop or a branch that runs one gets a computation that calls it.
    """
    names = Names(module.by_name)
    controls = [i.op for c in module.computations for i in c if i.op.lowering is Lowering.CONTROL]
    wrapped = {name for op in controls for name in op.called_computations if name in outlined}
    wrappers: dict[str, Computation] = {}
    computations: list[Computation] = []
    for computation in module.computations:
        changed = tuple(_outlined(i, outlined, wrappers) for i in computation)
        if any(a is not b for a, b in zip(changed, computation.instructions, strict=True)):
            thread, span = computation.execution_thread, computation.span
            computation = Computation(computation.name, changed, computation.root, thread, span)
        computations.append(computation)
        if computation.name in wrapped:
            computations.append(wrappers.setdefault(computation.name, _wrapper(computation, names)))
    return module.replace(computations=tuple(computations))


def _outlined(instruction: Instruction, outlined: frozenset[str], wrappers: dict[str, Computation]) -> Instruction:
    op = instruction.op
    if not any(name in outlined for name in op.called_computations):
        return instruction
    if op.lowering is Lowering.CALL:
        return instruction.replace(op=OutlinedCall(to_apply=op.called_computations[0]))
    return instruction.replace(
        op=op.rename_computations(lambda name: wrappers[name].name if name in outlined else name)
    )


def _wrapper(computation: Computation, names: Names) -> Computation:
    """The replacement for the body of a loop or a branch: a computation with the same parameters that only calls it."""
    parameters = tuple(
        p.replace(op=Parameter(number=k), control_predecessors=()) for k, p in enumerate(computation.parameters)
    )
    inside = Names({p.name: p for p in parameters})
    root = computation.root_instruction
    call = Instruction(
        inside.fresh(f"{computation.name}.call"),
        root.shape,
        OutlinedCall(to_apply=computation.name),
        tuple(p.name for p in parameters),
        metadata=root.metadata,
        span=root.span,
    )
    return Computation(names.fresh(f"{computation.name}.once"), (*parameters, call), call.name)


__all__ = ["COPIED", "within_budget"]
