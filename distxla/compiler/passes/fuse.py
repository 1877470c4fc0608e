"""Loop fusion: instructions whose elements are computed in one loop, without memory between them.

The result is expressed in HLO itself: `fusion` instructions of kind kLoop. A fused computation holds parameters,
constants and instructions with Lowering.ELEMENT; its root is an ELEMENT, a REDUCTION, or a tuple of ELEMENTs with equal
dims or of REDUCTIONs with equal operand dims and dimensions.
"""

from __future__ import annotations

from typing import ClassVar

from distxla.compiler.passes.build_fusions import Group, Path, build_fusions
from distxla.compiler.passes.in_flight_operations import InFlightOperations
from distxla.compiler.passes.merge_fusions import merge_fusions
from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.names import Names
from distxla.ir.op import Lowering
from distxla.ir.shape import Shape
from distxla.lazy_dataclass import dataclass
from distxla.rewrites.step import Pass


@dataclass(frozen=True)
class Fuse(Pass):
    """Wrap every ELEMENT and REDUCTION instruction that runs into a fusion, with as many of its producers as pay off.

    A producer joins its consumers' loops if its own result then needs no memory, or if it only moves data. It is
    computed again in several loops only where that is cheap, and never if it is expensive: then the number of its
    evaluations must not exceed its number of elements. Instructions between start and done of a
    collective stay there.
    """

    name: ClassVar[str] = "fuse"
    max_members: int = 96  # instructions of a fusion
    max_evaluations: int = 192  # emitted elements per iteration, a member counted once for every index it is read at
    max_consumers: int = 6  # loops that recompute a cheap producer
    max_repetition: int = 32  # evaluations per element of a cheap producer in one loop

    def run(self, module: Module) -> Module:
        running = running_computations(module)
        names = Names(module.by_name)
        new: list[Computation] = []
        for computation in module.computations:
            if computation.name not in running:
                new.append(computation)
                continue
            grouping = _Grouping(self, computation)
            groups = merge_fusions(computation, grouping.run(), grouping.pairs)
            new.extend(build_fusions(computation, groups, grouping.bare, names))
        return module.with_computations(new)


class _Grouping:
    """Walks a computation from its root up and lets each instruction join its consumers."""

    def __init__(self, settings: Fuse, computation: Computation) -> None:
        self.settings = settings
        self.computation = computation
        self.membership: dict[str, list[Group]] = {}  # name -> groups that compute it
        self.awaited = awaited(computation)
        self.pairs = InFlightOperations(computation)
        self.bare: set[str] = set()  # views that stay instructions: other names for their operand's memory

    def run(self) -> list[Group]:
        groups: list[Group] = []
        for instruction in reversed(self.computation.instructions):
            if not _runs_in_a_loop(instruction) or instruction.op.role.is_constant:
                continue  # build_fusions copies small constants into every fusion that reads them
            if self.join(instruction):
                continue
            if _is_view(self.computation, instruction):
                self.bare.add(instruction.name)
                continue
            group = Group([instruction.name], _iterations(self.computation, instruction))
            group.paths[instruction.name] = {()}
            self.membership.setdefault(instruction.name, []).append(group)
            groups.append(group)
        groups.reverse()
        return groups

    def join(self, instruction: Instruction) -> bool:
        """Put the instruction into its consumers' groups; whether its result then needs no memory."""
        if (
            instruction.op.lowering is not Lowering.ELEMENT
            or instruction.control_predecessors
            or instruction.name in self.awaited
            or instruction.shape.is_dynamic
        ):
            return False
        if _is_view(self.computation, instruction) and not self._is_fusible(instruction.operands[0]):
            return False
        users = self.computation.users[instruction.name]
        consumers = {id(g): g for user in users for g in self.membership.get(user, ())}
        from_memory = instruction.name == self.computation.root or any(
            user not in self.membership or user in self.bare for user in users
        )
        fits = {key: paths for key, g in consumers.items() if (paths := self._paths(g, instruction)) is not None}
        inside = bool(users) and not from_memory and len(fits) == len(consumers)
        if inside and len(consumers) > 1:
            inside = not instruction.op.elements.is_expensive and len(consumers) <= self.settings.max_consumers
        if not inside and not _only_moves(instruction, self.computation):
            return False
        for key, paths in fits.items():
            consumers[key].paths[instruction.name] = paths
            self.membership.setdefault(instruction.name, []).append(consumers[key])
        return inside

    def _is_fusible(self, name: str) -> bool:
        instruction = self.computation[name]
        return instruction.op.lowering is Lowering.ELEMENT and not instruction.op.role.is_constant

    def _paths(self, group: Group, instruction: Instruction) -> set[Path] | None:
        """At which indices the group would evaluate the instruction; None if it had better not."""
        settings = self.settings
        if self.pairs.end_between(instruction.name, group.roots[-1]) and not _only_moves(instruction, self.computation):
            return None
        paths: set[Path] = set()
        for user in self.computation.users[instruction.name]:
            user_paths = group.paths.get(user)
            if user_paths is None:
                continue
            consumer = self.computation[user]
            if instruction.shape.size == 1:
                paths.add(("one",))
            elif consumer.op.elements.is_elementwise or consumer.op.lowering is Lowering.REDUCTION:
                paths |= user_paths
            else:
                for number, operand in enumerate(consumer.operands):
                    if operand == instruction.name:
                        paths |= {(*path, user, number) for path in user_paths}
        if len(group.paths) >= settings.max_members or group.evaluations + len(paths) > settings.max_evaluations:
            return None
        size = max(1, instruction.shape.size)
        evaluations = len(paths) * group.iterations
        if instruction.shape.size == 1 or evaluations <= size:
            # A scalar is loop-invariant: it is computed once, whatever it costs.
            return paths
        if instruction.op.elements.is_expensive:
            return None
        if instruction.op.elements.is_elementwise and evaluations > settings.max_repetition * size:
            return None
        return paths


def awaited(computation: Computation) -> set[str]:
    """The instructions at which control edges begin: they must stay, under their names."""
    return {name for instruction in computation for name in instruction.control_predecessors}


def running_computations(module: Module) -> set[str]:
    """The computations that the entry runs as a whole: itself, and those that control structures in them call."""
    running: set[str] = set()
    pending = [module.entry]
    while pending:
        name = pending.pop()
        if name in running:
            continue
        running.add(name)
        for instruction in module[name]:
            if instruction.op.lowering is Lowering.CONTROL:
                pending.extend(instruction.op.called_computations)
    return running


def _runs_in_a_loop(instruction: Instruction) -> bool:
    return instruction.op.lowering in (Lowering.ELEMENT, Lowering.REDUCTION)


def _is_view(computation: Computation, instruction: Instruction) -> bool:
    shapes = tuple(o.shape for o in computation.operands(instruction))
    return (
        instruction.op.lowering is Lowering.ELEMENT
        and bool(shapes)
        and not instruction.control_predecessors
        and instruction.op.is_view(instruction.shape, shapes)
    )


def _only_moves(instruction: Instruction, computation: Computation) -> bool:
    """Whether its elements belong to another value: reading through it costs no more than reading its result."""
    op = instruction.op
    if op.elements.is_elementwise or op.called_computations:
        return False
    sources = [o.shape for o in computation.operands(instruction)]
    return len(sources) <= 1 and sum(s.size for s in sources) < max(2, instruction.shape.size)


def _iterations(computation: Computation, root: Instruction) -> int:
    shape: Shape = root.shape
    if root.op.lowering is Lowering.REDUCTION:
        shape = computation[root.operands[0]].shape
    return shape.size
